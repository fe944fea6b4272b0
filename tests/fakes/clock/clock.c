/* A time of day that a test moves: loaded before the C library, it adds to it the seconds that stand in a file.

   With NODEHEAL_FAKE_WAITS_BY_WALL set, what waits for a lock with a time limit counts that limit by the time of day, as
   builds of Python do that were made for a C library older than 2.30. The monotonic clock is never touched. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *shift;
static int (*real_gettime)(clockid_t, struct timespec *);

static void begin(void)
{
    if (real_gettime)
        return;
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *name = getenv("NODEHEAL_FAKE_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    shift = mapped == MAP_FAILED ? NULL : mapped;
}

int clock_gettime(clockid_t clock, struct timespec *told)
{
    begin();
    int failed = real_gettime(clock, told);
    if (!failed && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        told->tv_sec += *shift;
    return failed;
}

int gettimeofday(struct timeval *restrict told, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec;
    told->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *told)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told)
        *told = now.tv_sec;
    return now.tv_sec;
}

static double seconds(const struct timespec *at)
{
    return (double)at->tv_sec + (double)at->tv_nsec / 1e9;
}

int sem_clockwait(sem_t *restrict lock, clockid_t clock, const struct timespec *restrict until)
{
    typedef int waits(sem_t *, clockid_t, const struct timespec *);
    if (!getenv("NODEHEAL_FAKE_WAITS_BY_WALL"))
        return ((waits *)dlsym(RTLD_NEXT, "sem_clockwait"))(lock, clock, until);
    struct timespec now;
    clock_gettime(clock, &now);
    double left = seconds(until) - seconds(&now);
    clock_gettime(CLOCK_REALTIME, &now);
    double ends_at = seconds(&now) + left;
    while (sem_trywait(lock)) {
        clock_gettime(CLOCK_REALTIME, &now);
        if (seconds(&now) >= ends_at) {
            errno = ETIMEDOUT;
            return -1;
        }
        usleep(5000);
    }
    return 0;
}

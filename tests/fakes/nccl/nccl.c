/* A fake of NCCL and of CUDA's runtime in one library, for two processes on one machine: the numbers really go from one
 * to the other, by a file that is named by the unique id. FAKE_NCCL_GPUS: how many GPUs this process has. FAKE_NCCL:
 * wrong (one number of the sum is off on GPU 0), fails (ncclAllReduce), hangs (ncclCommInitRank), blind (no GPU). */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_RANKS 16
#define MOST_FLOATS (1 << 18)

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct { atomic_int arrived; float own[MOST_RANKS][MOST_FLOATS]; } Meeting;
typedef struct { Meeting *at; int rank, ranks, meetings; char name[128]; } Comm;
typedef struct { const float *own; float *sum; size_t count; Comm *comm; } Queued;

static Queued queued[MOST_RANKS];
static Comm *joined[MOST_RANKS];
static int queue_length, join_length, is_grouped;

static int is(const char *word) { const char *said = getenv("FAKE_NCCL"); return said && !strcmp(said, word); }

const char *cudaGetErrorString(int code) { return code == 100 ? "no CUDA-capable device is detected" : "invalid argument"; }
const char *ncclGetErrorString(int code) { return code == 2 ? "unhandled system error" : "invalid argument"; }

int cudaGetDeviceCount(int *count) {
    const char *said = getenv("FAKE_NCCL_GPUS");
    *count = said ? atoi(said) : 2;
    return is("blind") ? 100 : 0;
}
int cudaSetDevice(int device) { return device < 0; }
int cudaMalloc(void **to, size_t size) { *to = malloc(size); return *to == NULL; }
int cudaMemcpy(void *to, const void *from, size_t size, int kind) { memcpy(to, from, size); return kind != 1 && kind != 2; }
int cudaDeviceSynchronize(void) { return 0; }

int ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/tmp/fake-nccl-%d-%p", getpid(), (void *)id);
    return 0;
}

/* Everybody waits until all ranks have come this often. */
static void meet(Comm *comm, int here) {
    comm->meetings++;
    atomic_fetch_add(&comm->at->arrived, here);
    while (atomic_load(&comm->at->arrived) < comm->meetings * comm->ranks) usleep(500);
}

int ncclGroupStart(void) { is_grouped = 1; return 0; }

int ncclCommInitRank(Comm **made, int ranks, ncclUniqueId id, int rank) {
    if (is("hangs")) sleep(600);
    if (!is_grouped || ranks > MOST_RANKS || rank >= ranks) return 4;
    int file = open(id.internal, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof(Meeting))) return 2;
    Comm *comm = calloc(1, sizeof *comm);
    comm->at = mmap(NULL, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    memcpy(comm->name, id.internal, sizeof comm->name);
    comm->rank = rank, comm->ranks = ranks, *made = comm;
    joined[join_length++] = comm;
    return 0;
}

int ncclAllReduce(const void *own, void *sum, size_t count, int type, int op, Comm *comm, void *stream) {
    (void)stream;
    if (is("fails")) return 2;
    if (!is_grouped || type != 7 || op != 0 || count > MOST_FLOATS) return 4;
    queued[queue_length++] = (Queued){own, sum, count, comm};
    return 0;
}

/* The first communicator of a process counts the meetings for all of its ranks. */
int ncclGroupEnd(void) {
    is_grouped = 0;
    if (join_length) {
        meet(joined[0], join_length);
        unlink(joined[0]->name); /* everybody has it open */
        join_length = 0;
    }
    if (!queue_length) return 0;
    int here = queue_length;
    for (int n = 0; n < here; n++) memcpy(queued[n].comm->at->own[queued[n].comm->rank], queued[n].own, 4 * queued[n].count);
    meet(queued[0].comm, here);
    for (int n = 0; n < here; n++)
        for (size_t i = 0; i < queued[n].count; i++) {
            float sum = 0;
            for (int rank = 0; rank < queued[n].comm->ranks; rank++) sum += queued[n].comm->at->own[rank][i];
            queued[n].sum[i] = sum;
        }
    if (is("wrong")) queued[0].sum[queued[0].count - 1] += 1;
    meet(queued[0].comm, here);
    queue_length = 0;
    return 0;
}

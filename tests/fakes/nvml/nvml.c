/* A library that answers like NVIDIA's, from a file that it reads again at each call: a test changes the file and so
 * the GPUs. Lines are `key value`; what is not there has the value of a healthy GPU, and -1 stands for "not supported".
 *
 *   gpus 8               how many there are
 *   init 9               what initialising answers
 *   hang 1               no call comes back
 *   3.error 15           what every call about GPU 3 answers
 *   3.handle 15          what asking for GPU 3 answers
 *   3.temperature 45     see the calls below for the other names
 *   3.field.4 2          a field value, by NVML's number; -2 and less set the high bits
 *   3.pid 4711           the process that uses it
 *   3.links 18           how many NVLinks it has, all up but those that are told:  3.link.7 0
 *   event 1 3 8 79       the first event: of GPU 3, of type 8, with data 79; each is handed out once, in this order
 *
 * Built with -DOLD_DRIVER it lacks the calls of newer drivers.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, TIMEOUT = 10,
       VERSION_MISMATCH = 25 };
enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };

typedef struct gpu *device;

static long long last_event;
static int is_open;

static long long said(const char *key, long long otherwise)
{
    const char *path = getenv("NODEHEAL_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], name[128];
    long long value, found = otherwise;

    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%127s %lld", name, &value) == 2 && !strcmp(name, key))
            found = value;
    if (file)
        fclose(file);
    return found;
}

static long long told(device gpu, const char *what, long long otherwise)
{
    char key[128];

    snprintf(key, sizeof key, "%ld.%s", (long)gpu - 1, what);
    return said(key, otherwise);
}

static int broken(device gpu)
{
    while (said("hang", 0))
        usleep(10000);
    return (int)told(gpu, "error", SUCCESS);
}

/* One number of one GPU. */
static int number(device gpu, const char *what, long long otherwise, unsigned int *answer)
{
    long long value = told(gpu, what, otherwise);
    int error = broken(gpu);

    if (error || value < 0)
        return error ? error : NOT_SUPPORTED;
    *answer = (unsigned int)value;
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned int flags)
{
    int answer = (int)said("init", SUCCESS);

    (void)flags;
    is_open = answer == SUCCESS;
    return answer;
}

int nvmlShutdown(void)
{
    is_open = 0;
    return SUCCESS;
}

const char *nvmlErrorString(int error)
{
    static char text[32];

    snprintf(text, sizeof text, "error %d", error);
    return text;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    while (said("hang", 0))
        usleep(10000);
    *count = (unsigned int)said("gpus", 1);
    return is_open ? (int)said("count", SUCCESS) : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device *gpu)
{
    *gpu = (device)((long)index + 1);
    return (int)told(*gpu, "handle", SUCCESS);
}

struct process {
    unsigned int pid;
    unsigned long long memory;
    unsigned int instance, compute;
};

int nvmlDeviceGetComputeRunningProcesses_v3(device gpu, unsigned int *count, struct process *found)
{
    unsigned int room = *count;
    long long pid = told(gpu, "pid", 0);

    *count = pid > 0;
    if (pid < 0)
        return NOT_SUPPORTED;
    if (*count > room)
        return INSUFFICIENT_SIZE;
    if (pid)
        found[0] = (struct process){(unsigned int)pid, 1 << 20, 0, 0};
    return broken(gpu);
}

struct pci {
    char legacy[16];
    unsigned int domain, bus, device, id, subsystem;
    char address[32];
};

int nvmlDeviceGetPciInfo_v3(device gpu, struct pci *pci)
{
    memset(pci, 0, sizeof *pci);
    snprintf(pci->address, sizeof pci->address, "00000000:%02lX:00.0", (long)gpu + 15);
    return broken(gpu);
}

int nvmlDeviceGetUUID(device gpu, char *uuid, unsigned int length)
{
    snprintf(uuid, length, "GPU-00000000-0000-0000-0000-%012ld", (long)gpu);
    return broken(gpu);
}

int nvmlDeviceGetSerial(device gpu, char *serial, unsigned int length)
{
    snprintf(serial, length, "16513230000%02ld", (long)gpu);
    return broken(gpu);
}

int nvmlDeviceGetName(device gpu, char *name, unsigned int length)
{
    snprintf(name, length, "NVIDIA H100 80GB HBM3");
    return broken(gpu);
}

int nvmlDeviceGetTemperature(device gpu, int sensor, unsigned int *celsius)
{
    (void)sensor;
    return number(gpu, "temperature", 45, celsius);
}

int nvmlDeviceGetTemperatureThreshold(device gpu, int threshold, unsigned int *celsius)
{
    static const char *names[] = {"shutdown", "slowdown", "memory_limit", "limit"};
    static const int healthy[] = {92, 89, 95, 85};

    if (threshold < 0 || threshold > 3)
        return INVALID;
    return number(gpu, names[threshold], healthy[threshold], celsius);
}

int nvmlDeviceGetPowerUsage(device gpu, unsigned int *milliwatts) { return number(gpu, "power", 70500, milliwatts); }

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(device gpu, struct memory *memory)
{
    memory->total = 80ULL << 30;
    memory->used = (unsigned long long)told(gpu, "memory_used", 1 << 20);
    memory->free = memory->total - memory->used;
    return broken(gpu);
}

struct rates { unsigned int gpu, memory; };

int nvmlDeviceGetUtilizationRates(device gpu, struct rates *rates)
{
    rates->memory = 0;
    return number(gpu, "utilisation", 0, &rates->gpu);
}

int nvmlDeviceGetCurrPcieLinkWidth(device gpu, unsigned int *width) { return number(gpu, "width", 16, width); }
int nvmlDeviceGetMaxPcieLinkWidth(device gpu, unsigned int *width) { return number(gpu, "width_most", 16, width); }
int nvmlDeviceGetCurrPcieLinkGeneration(device gpu, unsigned int *it) { return number(gpu, "generation", 5, it); }
int nvmlDeviceGetMaxPcieLinkGeneration(device gpu, unsigned int *it) { return number(gpu, "generation_most", 5, it); }

int nvmlDeviceGetClockInfo(device gpu, int kind, unsigned int *mhz)
{
    (void)kind;
    return number(gpu, "clock", 1980, mhz);
}

int nvmlDeviceGetMaxClockInfo(device gpu, int kind, unsigned int *mhz)
{
    (void)kind;
    return number(gpu, "clock_most", 1980, mhz);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device gpu, unsigned long long *reasons)
{
    *reasons = (unsigned long long)told(gpu, "clock_reasons", 0);
    return broken(gpu);
}

int nvmlDeviceGetNvLinkState(device gpu, unsigned int link, unsigned int *is_up)
{
    char name[32];

    if ((long long)link >= told(gpu, "links", 0))
        return broken(gpu) ? broken(gpu) : NOT_SUPPORTED;
    snprintf(name, sizeof name, "link.%u", link);
    return number(gpu, name, 1, is_up);
}

#ifndef OLD_DRIVER

int nvmlDeviceGetCurrentClocksEventReasons(device gpu, unsigned long long *reasons)
{
    return nvmlDeviceGetCurrentClocksThrottleReasons(gpu, reasons);
}

int nvmlDeviceGetMigMode(device gpu, unsigned int *current, unsigned int *pending)
{
    *pending = 0;
    return number(gpu, "mig", 0, current);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device gpu, unsigned int link, int *kind)
{
    (void)link;
    *kind = (int)told(gpu, "remote", 2);
    return broken(gpu);
}

struct sram { unsigned int version; unsigned long long counts[11]; unsigned int is_exceeded; };

int nvmlDeviceGetSramEccErrorStatus(device gpu, struct sram *status)
{
    return number(gpu, "sram_exceeded", 0, &status->is_exceeded);
}

struct repair { unsigned int version, channel, unit; };

int nvmlDeviceGetRepairStatus(device gpu, struct repair *status)
{
    int error = number(gpu, "channel_repair", 0, &status->channel);

    return error ? error : number(gpu, "tpc_repair", 0, &status->unit);
}

struct unrepairable { unsigned int version, is_there; };

int nvmlDeviceGetUnrepairableMemoryFlag_v1(device gpu, struct unrepairable *memory)
{
    return number(gpu, "unrepairable", 0, &memory->is_there);
}

/* The second version of the structure, and the third, which has a sum behind it. */
struct fabric {
    unsigned int version;
    unsigned char cluster[16];
    unsigned int status, clique, state, mask;
    unsigned char summary;
};

int nvmlDeviceGetGpuFabricInfoV(device gpu, struct fabric *fabric)
{
    unsigned int version = fabric->version >> 24;

    if (version > (unsigned int)said("fabric_version", 3))
        return VERSION_MISMATCH;
    fabric->state = (unsigned int)told(gpu, "fabric_state", 3);
    fabric->status = (unsigned int)told(gpu, "fabric_status", 0);
    fabric->mask = (unsigned int)told(gpu, "fabric_mask", 0x1aa);
    if (version > 2)
        fabric->summary = (unsigned char)told(gpu, "fabric_summary", 1);
    return broken(gpu);
}

struct field {
    unsigned int id, scope;
    long long at, latency;
    int type, answer;
    union { unsigned int small; unsigned long long large; } value;
};

int nvmlDeviceGetFieldValues(device gpu, int count, struct field *fields)
{
    char name[32];
    int error = broken(gpu);

    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "field.%u", fields[i].id);
        long long value = told(gpu, name, 0);
        fields[i].type = fields[i].id == 230 ? UNSIGNED_INT : UNSIGNED_LONG_LONG;
        fields[i].answer = error ? error : value == -1 ? NOT_SUPPORTED : SUCCESS;
        fields[i].value.large = (unsigned long long)value;
    }
    return SUCCESS;
}

#endif

struct event { device gpu; unsigned long long type, data; unsigned int instances[2]; };

int nvmlEventSetCreate(void **set) { *set = &last_event; return SUCCESS; }
int nvmlEventSetFree(void *set) { (void)set; return SUCCESS; }

int nvmlDeviceGetSupportedEventTypes(device gpu, unsigned long long *types)
{
    *types = (unsigned long long)told(gpu, "events", 0x1f);
    return broken(gpu);
}

int nvmlDeviceRegisterEvents(device gpu, unsigned long long types, void *set)
{
    (void)types;
    (void)set;
    return broken(gpu);
}

static int next_event(struct event *event)
{
    const char *path = getenv("NODEHEAL_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    long long at, gpu, type, data;
    int found = 0;

    while (file && !found && fgets(line, sizeof line, file))
        found = sscanf(line, "event %lld %lld %lld %lld", &at, &gpu, &type, &data) == 4 && at > last_event;
    if (file)
        fclose(file);
    if (found) {
        last_event = at;
        *event = (struct event){(device)(gpu + 1), (unsigned long long)type, (unsigned long long)data, {0, 0}};
    }
    return found;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned int milliseconds)
{
    (void)set;
    for (unsigned int waited = 0;; waited += 5) {
        if (said("wait", SUCCESS))
            return (int)said("wait", SUCCESS);
        if (next_event(event))
            return SUCCESS;
        if (waited >= milliseconds)
            return TIMEOUT;
        usleep(5000);
    }
}

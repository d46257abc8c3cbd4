/* A libnvidia-ml.so.1 whose GPUs are lines of a text file: NVML_STUB names it, and it may change while they are asked.
 *
 *   gpus 2                      how many there are: 0000:10:00.0, 0000:11:00.0, ...
 *   init 18                     what nvmlInit returns
 *   wait 15                     what waiting for events returns
 *   closed 1                    every call returns NVML_ERROR_UNINITIALIZED
 *   prints 1                    waiting for events prints something on standard output
 *   crash 1                     the next reading of a GPU is a segmentation fault
 *   driver 570.86.15
 *   unsupported nvmlDeviceGetMarginTemperature
 *   0.code 15                   what every call for GPU 0 returns
 *   0.hang 1                    reading GPU 0 never returns
 *   0.temperature 64            see the functions below for names
 *   0.field.142 3               a field; 0.field.162.5 of link 5; without a line it is not supported
 *   0.process 4711 2048         pid and MiB, as often as there are processes
 *   event 1 0 8 79              number (each is given once, in order), GPU, type, data
 *
 * Handles that are asked for are written to the same name with .opened behind.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };
enum { MOST_GPUS = 16, FIRST_BUS = 0x10, WAIT_STEP_MS = 50 };

typedef struct { int number; } gpu_t;
typedef gpu_t *device_t;
typedef struct { unsigned version; unsigned sensor; int celsius; } temperature_t;
typedef struct { unsigned version; int celsius; } margin_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef union { double d; unsigned ui; unsigned long long ull; } value_t;
typedef struct {
  uint32_t field, scope;
  int64_t at, latency;
  unsigned type, code;
  value_t value;
} field_t;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gi, ci; } process_t;
typedef struct { device_t device; unsigned long long type, data; unsigned gi, ci; } event_t;
typedef struct {
  unsigned version;
  uint8_t cluster[16];
  unsigned status, clique, state, health;
} fabric_t;

static gpu_t gpus[MOST_GPUS];
static char text[65536];
static struct timespec read_at;
static unsigned long given;

static void look(void) {
  const char *path = getenv("NVML_STUB");
  struct stat found;
  if (path == NULL || stat(path, &found) != 0) return;
  if (found.st_mtim.tv_sec == read_at.tv_sec && found.st_mtim.tv_nsec == read_at.tv_nsec) return;
  FILE *file = fopen(path, "r");
  if (file == NULL) return;
  text[0] = '\n';
  text[1 + fread(text + 1, 1, sizeof text - 2, file)] = '\0';
  fclose(file);
  read_at = found.st_mtim;
}

static const char *line(const char *key) {
  char wanted[128];
  snprintf(wanted, sizeof wanted, "\n%s ", key);
  const char *at = strstr(text, wanted);
  return at == NULL ? NULL : at + strlen(wanted);
}

static long long number(const char *key, long long otherwise) {
  const char *at = line(key);
  return at == NULL ? otherwise : strtoll(at, NULL, 0);
}

static long long of_gpu(device_t gpu, const char *name, long long otherwise) {
  char key[96];
  snprintf(key, sizeof key, "%d.%s", gpu->number, name);
  return number(key, otherwise);
}

static int is_unsupported(const char *function) {
  char wanted[128];
  snprintf(wanted, sizeof wanted, "\nunsupported %s\n", function);
  return strstr(text, wanted) != NULL;
}

static int check(device_t gpu, const char *function) {
  look();
  if (number("closed", 0)) return UNINITIALIZED;
  if (is_unsupported(function)) return NOT_SUPPORTED;
  return gpu == NULL ? OK : (int)of_gpu(gpu, "code", OK);
}

static int text_of(char *into, unsigned size, const char *key, const char *otherwise) {
  const char *at = line(key);
  snprintf(into, size, "%.*s", at ? (int)strcspn(at, "\n") : (int)strlen(otherwise), at ? at : otherwise);
  return OK;
}

#define CHECKED(gpu) do { int code = check(gpu, __func__); if (code != OK) return code; } while (0)
#define UNSIGNED(function, name, otherwise) \
  int function(device_t gpu, unsigned *value) { CHECKED(gpu); *value = (unsigned)of_gpu(gpu, name, otherwise); return OK; }

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  look();
  return (int)number("init", OK);
}
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }
int nvmlSystemGetDriverVersion(char *into, unsigned size) { CHECKED(NULL); return text_of(into, size, "driver", "570.86.15"); }
int nvmlSystemGetNVMLVersion(char *into, unsigned size) { CHECKED(NULL); return text_of(into, size, "library", "12.570.86.15"); }

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, device_t *gpu) {
  CHECKED(NULL);
  unsigned domain, bus, device;
  char path[4096];
  snprintf(path, sizeof path, "%s.opened", getenv("NVML_STUB"));
  FILE *opened = fopen(path, "a");
  if (opened != NULL) {
    fprintf(opened, "%s\n", address);
    fclose(opened);
  }
  if (sscanf(address, "%x:%x:%x", &domain, &bus, &device) != 3) return NOT_FOUND;
  if (bus < FIRST_BUS || bus >= FIRST_BUS + number("gpus", 1)) return NOT_FOUND;
  *gpu = &gpus[bus - FIRST_BUS];
  (*gpu)->number = (int)(bus - FIRST_BUS);
  return (int)of_gpu(*gpu, "code", OK);
}

int nvmlDeviceGetIndex(device_t gpu, unsigned *value) { CHECKED(gpu); *value = gpu->number; return OK; }
int nvmlDeviceGetUUID(device_t gpu, char *into, unsigned size) {
  CHECKED(gpu);
  snprintf(into, size, "GPU-0a1b2c3d-0000-4000-8000-0000000000%02x", gpu->number);
  return OK;
}
int nvmlDeviceGetSerial(device_t gpu, char *into, unsigned size) {
  CHECKED(gpu);
  snprintf(into, size, "16501234567%02d", gpu->number);
  return OK;
}
int nvmlDeviceGetName(device_t gpu, char *into, unsigned size) { CHECKED(gpu); return text_of(into, size, "model", "NVIDIA Stub 80GB"); }
int nvmlDeviceGetMigMode(device_t gpu, unsigned *now, unsigned *pending) {
  CHECKED(gpu);
  *now = *pending = (unsigned)of_gpu(gpu, "mig", 0);
  return OK;
}

UNSIGNED(nvmlDeviceGetPersistenceMode, "persistence", 1)
UNSIGNED(nvmlDeviceGetMaxPcieLinkWidth, "width_max", 16)
UNSIGNED(nvmlDeviceGetMaxPcieLinkGeneration, "generation_max", 5)
UNSIGNED(nvmlDeviceGetCurrPcieLinkWidth, "width", 16)
UNSIGNED(nvmlDeviceGetCurrPcieLinkGeneration, "generation", 5)
UNSIGNED(nvmlDeviceGetPowerManagementDefaultLimit, "default_limit", 700000)
UNSIGNED(nvmlDeviceGetEnforcedPowerLimit, "limit", 700000)
UNSIGNED(nvmlDeviceGetPowerUsage, "power", 120000)

int nvmlDeviceGetTemperatureThreshold(device_t gpu, unsigned which, unsigned *value) {
  CHECKED(gpu);
  (void)which;
  *value = (unsigned)of_gpu(gpu, "slowdown", 90);
  return OK;
}
int nvmlDeviceGetTemperatureV(device_t gpu, temperature_t *into) { CHECKED(gpu); into->celsius = (int)of_gpu(gpu, "temperature", 40); return OK; }
int nvmlDeviceGetTemperature(device_t gpu, unsigned sensor, unsigned *value) {
  CHECKED(gpu);
  (void)sensor;
  *value = (unsigned)of_gpu(gpu, "temperature", 40);
  return OK;
}
int nvmlDeviceGetMarginTemperature(device_t gpu, margin_t *into) { CHECKED(gpu); into->celsius = (int)of_gpu(gpu, "margin", 45); return OK; }
int nvmlDeviceGetClockInfo(device_t gpu, unsigned which, unsigned *value) {
  CHECKED(gpu);
  (void)which;
  *value = (unsigned)of_gpu(gpu, "sm_clock", 1980);
  return OK;
}
int nvmlDeviceGetUtilizationRates(device_t gpu, utilization_t *into) {
  CHECKED(gpu);
  into->gpu = (unsigned)of_gpu(gpu, "utilization", 0);
  into->memory = 0;
  return OK;
}

int nvmlDeviceGetCurrentClocksEventReasons(device_t gpu, unsigned long long *mask) {
  CHECKED(gpu);
  if (number("crash", 0)) raise(SIGSEGV);
  while (of_gpu(gpu, "hang", 0)) pause();
  *mask = (unsigned long long)of_gpu(gpu, "clock_reasons", 1);
  return OK;
}

int nvmlDeviceGetFieldValues(device_t gpu, int count, field_t *fields) {
  CHECKED(gpu);
  for (int i = 0; i < count; i++) {
    char key[64];
    if (fields[i].scope) snprintf(key, sizeof key, "%d.field.%u.%u", gpu->number, fields[i].field, fields[i].scope);
    else snprintf(key, sizeof key, "%d.field.%u", gpu->number, fields[i].field);
    fields[i].code = line(key) == NULL ? NOT_SUPPORTED : OK;
    fields[i].type = 3;
    fields[i].value.ull = (unsigned long long)number(key, 0);
  }
  return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v3(device_t gpu, unsigned *count, process_t *into) {
  CHECKED(gpu);
  char wanted[32];
  unsigned found = 0;
  snprintf(wanted, sizeof wanted, "\n%d.process ", gpu->number);
  for (const char *at = strstr(text, wanted); at != NULL; at = strstr(at + 1, wanted), found++) {
    unsigned pid;
    unsigned long long mib;
    if (into == NULL || found >= *count || sscanf(at + strlen(wanted), "%u %llu", &pid, &mib) != 2) continue;
    into[found] = (process_t){pid, mib << 20, 0xFFFFFFFFu, 0xFFFFFFFFu};
  }
  int fits = into != NULL || found == 0;
  *count = found;
  return fits ? OK : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetGpuFabricInfoV(device_t gpu, fabric_t *into) {
  CHECKED(gpu);
  into->state = (unsigned)of_gpu(gpu, "fabric", 0);
  into->status = (unsigned)of_gpu(gpu, "fabric_status", OK);
  return OK;
}

int nvmlDeviceGetSupportedEventTypes(device_t gpu, unsigned long long *types) { CHECKED(gpu); *types = 0xFF9Full; return OK; }
int nvmlEventSetCreate(void **set) { CHECKED(NULL); *set = gpus; return OK; }
int nvmlDeviceRegisterEvents(device_t gpu, unsigned long long types, void *set) { CHECKED(gpu); (void)types; (void)set; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }

static int next_event(event_t *event) {
  for (const char *at = strstr(text, "\nevent "); at != NULL; at = strstr(at + 1, "\nevent ")) {
    unsigned long seq;
    int gpu;
    unsigned long long type, data;
    if (sscanf(at, "\nevent %lu %d %llu %llu", &seq, &gpu, &type, &data) != 4 || seq <= given) continue;
    given = seq;
    *event = (event_t){&gpus[gpu], type, data, 0xFFFFFFFFu, 0xFFFFFFFFu};
    return 1;
  }
  return 0;
}

int nvmlEventSetWait_v2(void *set, event_t *event, unsigned timeout_ms) {
  (void)set;
  if (number("prints", 0)) {
    fputs("a word of the stub", stdout);
    fflush(stdout);
  }
  for (unsigned waited = 0;; waited += WAIT_STEP_MS) {
    CHECKED(NULL);
    if (number("wait", OK)) return (int)number("wait", OK);
    if (next_event(event)) return OK;
    if (waited >= timeout_ms) return TIMEOUT;
    usleep(WAIT_STEP_MS * 1000);
  }
}

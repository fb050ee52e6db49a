/* NVML's own types as far as pynvml 13 uses them, and how a call enters the fake.
 *
 * Layouts and version words: the ctypes structures of pynvml.py (nvidia-ml-py 13.615.71).
 */
#ifndef FAKE_NVML_API_H
#define FAKE_NVML_API_H
#include "fake.h"

typedef int nvmlReturn_t;
enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4,
    NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, LIBRARY_NOT_FOUND = 12, GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};
enum { VALUE_UNSIGNED_INT = 1, VALUE_UNSIGNED_LONG_LONG = 3 };

typedef union {
    double d;
    unsigned ui;
    unsigned long long ull;
} Value;

typedef struct {
    uint32_t field_id, scope_id;
    int64_t timestamp_us, latency_us;
    unsigned value_type;
    nvmlReturn_t result;
    Value value;
} FieldValue;

typedef struct {
    unsigned long long stamp_us;
    Value value;
} Sample;

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} MemoryV2;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

typedef struct {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

typedef struct {
    unsigned version, sensor;
    int celsius;
} TemperatureV1;

_Static_assert(sizeof(FieldValue) == 40, "c_nvmlFieldValue_t");
_Static_assert(sizeof(Sample) == 16, "c_nvmlSample_t");
_Static_assert(sizeof(MemoryV2) == 0x28, "nvmlMemory_v2 = 0x02000028");
_Static_assert(sizeof(PciInfo) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(ProcessInfo) == 24, "c_nvmlProcessInfo_v3_t");
_Static_assert(sizeof(TemperatureV1) == 12, "nvmlTemperature_v1 = 0x100000C");

/* A call that has been let in: which card, which MIG instance of it if any, and when it reads. */
typedef struct {
    Card *card;
    const Mig *mig;
    int64_t start_ns, t_ns; /* t_ns: the moment that its answer is about */
    int64_t frozen_ns;      /* readings are stuck at this moment; INT64_MAX: not frozen */
} Call;

nvmlReturn_t enter(void *handle, Group group, Call *call);      /* refuses MIG instances */
nvmlReturn_t enter_any(void *handle, Group group, Call *call);  /* a card or a MIG instance */
nvmlReturn_t pay(Call *call, Group group, bool outer);
nvmlReturn_t put_text(char *target, unsigned size, const char *text);
bool is_initialised(void);
unsigned index_of(const Card *card); /* among the cards on the bus */

#define TRY(expression)                 \
    do {                                \
        nvmlReturn_t tried = (expression); \
        if (tried != SUCCESS)           \
            return tried;               \
    } while (0)
#define NEED(pointer)                   \
    do {                                \
        if (!(pointer))                 \
            return INVALID_ARGUMENT;    \
    } while (0)

#endif

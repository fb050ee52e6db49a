/* GPM: two samples of a card, and the exact mean of its signals between them (Hopper and newer).
 *
 * Layouts: c_nvmlGpm*_t of pynvml.py. Samples are opaque to the caller; how many are alive is
 * counted, and one that was freed is not accepted again.
 */
#include "api.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { SLOTS = 1024 };
enum { HOPPER = 9, METRICS_GET_VERSION = 1, SUPPORT_VERSION = 1 };
enum { SM_UTIL = 2, SM_OCCUPANCY = 3, ANY_TENSOR_UTIL = 5, DRAM_BW_UTIL = 10 };
static const unsigned ALIVE = 0x47504D53;

typedef struct {
    _Atomic unsigned mark;
    Card *card; /* NULL: nothing was read into it */
    int64_t t_ns;
} GpmSample;

typedef struct {
    unsigned id;
    nvmlReturn_t result;
    double value;
    const char *short_name, *long_name, *unit;
} GpmMetric;

typedef struct {
    unsigned version, count;
    GpmSample *first, *second;
    GpmMetric metrics[];
} GpmMetricsGet;

typedef struct {
    unsigned version, is_supported;
} GpmSupport;

_Static_assert(sizeof(GpmMetric) == 40, "c_nvmlGpmMetric_t");
_Static_assert(offsetof(GpmMetricsGet, metrics) == 24, "c_nvmlGpmMetricsGet_t");

/* Slots of samples. They are used in turn, so that a second free of a sample is still seen long
 * after the first: memory from malloc would have to be kept for ever instead. */
static GpmSample slots[SLOTS];
static _Atomic unsigned turn = 0;
static _Atomic int alive = 0;

EXPORT int fakeNvmlGpmSamples(void) { return alive; }

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(void *handle, GpmSupport *support)
{
    Call call;
    NEED(support);
    if (support->version != SUPPORT_VERSION)
        return ARGUMENT_VERSION_MISMATCH;
    TRY(enter(handle, G_LIGHT, &call));
    support->is_supported = call.card->capability_major >= HOPPER;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(GpmSample **sample)
{
    NEED(sample);
    for (int tried = 0; tried < SLOTS; tried++) {
        GpmSample *slot = &slots[turn++ % SLOTS];
        unsigned unused = 0;
        if (atomic_compare_exchange_strong(&slot->mark, &unused, ALIVE)) {
            slot->card = NULL;
            alive++;
            *sample = slot;
            return SUCCESS;
        }
    }
    abort();
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(GpmSample *sample)
{
    NEED(sample && sample->mark == ALIVE);
    sample->mark = 0;
    alive--;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(void *handle, GpmSample *sample)
{
    Call call;
    NEED(sample && sample->mark == ALIVE);
    TRY(enter(handle, G_GPM, &call));
    if (call.card->capability_major < HOPPER)
        return NOT_SUPPORTED;
    sample->card = call.card;
    sample->t_ns = call.t_ns;
    return SUCCESS;
}

static const Signal *signal_of(const Card *card, unsigned metric)
{
    switch (metric) {
    case SM_UTIL: return &card->signals[Q_SM_ACTIVE];
    case SM_OCCUPANCY: return &card->signals[Q_SM_OCCUPANCY];
    case ANY_TENSOR_UTIL: return &card->signals[Q_TENSOR_ACTIVE];
    case DRAM_BW_UTIL: return &card->signals[Q_DRAM_ACTIVE];
    default: return NULL;
    }
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(GpmMetricsGet *get)
{
    NEED(get);
    if (get->version != METRICS_GET_VERSION)
        return ARGUMENT_VERSION_MISMATCH;
    GpmSample *first = get->first, *second = get->second;
    NEED(first && second && first->mark == ALIVE && second->mark == ALIVE);
    NEED(first->card && first->card == second->card && first->t_ns < second->t_ns);
    double start_s = (double)first->t_ns * 1e-9, end_s = (double)second->t_ns * 1e-9;
    for (unsigned i = 0; i < get->count; i++) {
        const Signal *signal = signal_of(first->card, get->metrics[i].id);
        get->metrics[i].result = signal ? SUCCESS : NOT_SUPPORTED;
        if (signal)
            get->metrics[i].value = signal_energy(signal, start_s, end_s) / (end_s - start_s);
    }
    return SUCCESS;
}

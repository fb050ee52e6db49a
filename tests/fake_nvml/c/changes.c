/* What was set: a log of all calls that set something, in a file that processes share.
 *
 * The settings of a card at a moment follow from the log, so that every process sees the same card
 * and tests know what was called when. Record: class Change of changes.py.
 */
#include "api.h"

#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_CHANGES = 1 << 17, VOLTA = 5 };

typedef struct {
    _Atomic int is_complete;
    int kind, card, pid, result;
    unsigned value; /* mW, MHz (0: not locked), or parts per million */
    int64_t t_ns;
} Change;

struct Log {
    _Atomic uint64_t count;
    Change changes[MAX_CHANGES + 1]; /* the last one stays empty */
};

_Static_assert(sizeof(Change) == 32, "RECORD of changes.py");

Log *open_log(const char *scenario_path)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.changes", scenario_path);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return NULL;
    void *log = MAP_FAILED;
    if (ftruncate(file, sizeof(Log)) == 0)
        log = mmap(NULL, sizeof(Log), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return log == MAP_FAILED ? NULL : log;
}

static void append(int card, ChangeKind kind, unsigned value, nvmlReturn_t result)
{
    Log *log = scenario->log;
    uint64_t index = atomic_fetch_add(&log->count, 1);
    if (index >= MAX_CHANGES)
        abort();
    Change *change = &log->changes[index];
    change->kind = (int)kind, change->card = card, change->pid = (int)getpid();
    change->result = result, change->value = value, change->t_ns = now_ns();
    change->is_complete = 1;
}

static void find_end(const Card *card, Segment *segment)
{
    const Change *change;
    segment->end_ns = INT64_MAX;
    for (; (change = &scenario->log->changes[segment->next])->is_complete; segment->next++)
        if (change->card == card->index && change->result == SUCCESS) {
            /* Virtual time may be set back: the log stays in order. */
            segment->end_ns = change->t_ns > segment->start_ns ? change->t_ns : segment->start_ns;
            return;
        }
}

Segment first_segment(const Card *card)
{
    Segment segment = {.limit_w = card->limit_w, .load = 1.0, .start_ns = INT64_MIN};
    find_end(card, &segment);
    return segment;
}

/* Goes on to the next time span in which the settings of the card are constant; false if none. */
bool next_segment(const Card *card, Segment *segment)
{
    if (segment->end_ns == INT64_MAX)
        return false;
    const Change *change = &scenario->log->changes[segment->next++];
    double value = (double)change->value;
    switch ((ChangeKind)change->kind) {
    case SET_LIMIT: segment->limit_w = value * 1e-3; break;
    case SET_CLOCK: segment->clock_mhz = value; break;
    case SET_MEMORY_CLOCK: segment->memory_clock_mhz = value; break;
    case SET_LOAD: segment->load = value * 1e-6; break;
    }
    segment->start_ns = segment->end_ns;
    find_end(card, segment);
    return true;
}

Segment segment_at(const Card *card, int64_t t_ns)
{
    Segment segment = first_segment(card);
    while (segment.end_ns <= t_ns && next_segment(card, &segment))
        continue;
    return segment;
}

/* ---- the calls that set something */
static bool is_inside(const Card *card, ChangeKind kind, unsigned value)
{
    if (kind == SET_LIMIT)
        return value >= round(card->min_limit_w * 1e3) && value <= round(card->max_limit_w * 1e3);
    return kind != SET_CLOCK || value == 0
        || (value >= card->min_sm_clock_mhz && value <= card->max_sm_clock_mhz);
}

static nvmlReturn_t refusal(const Card *card, ChangeKind kind, unsigned value)
{
    if (card->mig_mode > 0 || (kind != SET_LIMIT && card->architecture < VOLTA))
        return NOT_SUPPORTED;
    if (card->can_write <= 0.0 && !getenv("FAKE_NVML_ROOT"))
        return NO_PERMISSION;
    return is_inside(card, kind, value) ? SUCCESS : INVALID_ARGUMENT;
}

static nvmlReturn_t set(void *handle, ChangeKind kind, unsigned value)
{
    Call call = {.card = NULL};
    nvmlReturn_t result = enter(handle, G_SETTERS, &call);
    if (result == SUCCESS)
        result = refusal(call.card, kind, value);
    if (call.card)
        append(call.card->index, kind, value, result);
    return result;
}

EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(void *handle, unsigned limit_mw)
{
    return set(handle, SET_LIMIT, limit_mw);
}

EXPORT nvmlReturn_t nvmlDeviceSetGpuLockedClocks(void *handle, unsigned min_mhz, unsigned max_mhz)
{
    return min_mhz > max_mhz ? INVALID_ARGUMENT : set(handle, SET_CLOCK, max_mhz);
}

EXPORT nvmlReturn_t nvmlDeviceResetGpuLockedClocks(void *handle)
{
    return set(handle, SET_CLOCK, 0);
}

EXPORT nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(void *handle, unsigned min_mhz,
                                                    unsigned max_mhz)
{
    return min_mhz > max_mhz ? INVALID_ARGUMENT : set(handle, SET_MEMORY_CLOCK, max_mhz);
}

EXPORT nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(void *handle)
{
    return set(handle, SET_MEMORY_CLOCK, 0);
}

/* The share of its power above idle that the card uses from now on: no call of NVML. */
EXPORT void fakeNvmlSetLoad(unsigned card, double load)
{
    append((int)card, SET_LOAD, (unsigned)lround(load * 1e6), SUCCESS);
}

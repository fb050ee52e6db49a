/* Start and end, errors, handles, and the door that each call goes through. */
#include "api.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static _Atomic int initialised = 0;

/* ---- exports for tests */
EXPORT int fakeNvmlLoad(const char *path)
{
    initialised = 0;
    return scenario_load(path);
}

EXPORT void fakeNvmlUnload(void)
{
    initialised = 0;
    scenario = NULL;
}

EXPORT const char *fakeNvmlErrorText(void)
{
    return scenario_error();
}

static double relative_s(double unix_s)
{
    return unix_s - (double)scenario->epoch_ns * 1e-9;
}

EXPORT double fakeNvmlSignalPower(unsigned card, double unix_s)
{
    return card_power(&scenario->cards[card], relative_s(unix_s));
}

EXPORT double fakeNvmlSignalEnergy(unsigned card, double start_unix_s, double end_unix_s)
{
    const Card *played = &scenario->cards[card];
    return card_energy(played, relative_s(start_unix_s), relative_s(end_unix_s));
}

EXPORT double fakeNvmlSignalFiltered(unsigned card, double unix_s, double response_s)
{
    return card_filtered(&scenario->cards[card], relative_s(unix_s), response_s);
}

EXPORT double fakeNvmlStepS(unsigned card)
{
    return card_step_s(&scenario->cards[card], now_ns());
}

/* ---- start and end */
bool is_initialised(void)
{
    return initialised > 0 && scenario;
}

static nvmlReturn_t find_scenario(void)
{
    const char *path = getenv("FAKE_NVML_CONFIG");
    if (scenario)
        return SUCCESS;
    if (!path || !*path)
        return LIBRARY_NOT_FOUND; /* as a machine without a driver answers */
    if (scenario_load(path) == 0)
        return SUCCESS;
    fprintf(stderr, "fake NVML: %s\n", scenario_error());
    return UNKNOWN;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    Call call = {.frozen_ns = INT64_MAX};
    (void)flags;
    TRY(find_scenario());
    /* Only the first init of a process costs time and may fail: the second took 8 us (H100). */
    if (scenario->n_cards > 0 && !initialised) {
        call.card = &scenario->cards[0];
        TRY(pay(&call, G_INIT, false));
    }
    initialised++;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    if (!is_initialised())
        return UNINITIALIZED;
    initialised--;
    return SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    static const char *const texts[] = {
        [0] = "The operation was successful", [1] = "Uninitialized", [2] = "Invalid Argument",
        [3] = "Not Supported", [4] = "Insufficient Permissions", [5] = "Already Initialized",
        [6] = "Not Found", [7] = "Insufficient Size", [8] = "Insufficient External Power",
        [9] = "Driver Not Loaded", [10] = "Timeout", [11] = "Interrupt Request Issue",
        [12] = "NVML Shared Library Not Found", [13] = "Function Not Found",
        [14] = "Corrupted infoROM", [15] = "GPU is lost", [16] = "GPU requires restart",
        [17] = "The operating system has blocked the request.",
        [18] = "RM has detected an NVML/RM version mismatch.", [19] = "In use by another client",
        [20] = "Insufficient memory", [21] = "No data", [25] = "Argument version mismatch"};
    bool known = result >= 0 && (size_t)result < sizeof texts / sizeof *texts && texts[result];
    return known ? texts[result] : "Unknown Error";
}

/* ---- the system */
nvmlReturn_t put_text(char *target, unsigned size, const char *text)
{
    NEED(target);
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(target, text);
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    return is_initialised() ? put_text(version, size, scenario->driver_version) : UNINITIALIZED;
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    return is_initialised() ? put_text(version, size, scenario->nvml_version) : UNINITIALIZED;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    NEED(version);
    TRY(find_scenario()); /* NVML answers this before nvmlInit, too */
    *version = (int)scenario->cuda_version;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

/* ---- handles: pointers into the scenario */
static bool find_handle(void *handle, Call *call)
{
    Scenario *loaded = scenario;
    for (size_t i = 0; i < loaded->n_cards; i++) {
        Card *card = &loaded->cards[i];
        call->card = card;
        call->mig = NULL;
        if (handle == card)
            return true;
        for (size_t j = 0; j < card->n_migs; j++) {
            call->mig = &card->migs[j];
            if (handle == call->mig)
                return true;
        }
    }
    return false;
}

/* Lets the call take its time, then says from when its answer is and whether it fails.
 * A nested cost (a field inside GetFieldValues) ignores faults of '*': its outer call had them. */
nvmlReturn_t pay(Call *call, Group group, bool outer)
{
    int card = call->card->index;
    const Fault *hang = fault_active(group, card, F_HANG, now_ns(), outer);
    int64_t hang_ns = hang ? to_ns(hang->value) : 0, cost_ns = latency_ns(call->card, group);
    spend_until_ns(&call->start_ns, hang_ns + cost_ns);
    double waited = call->card->latencies[group].read_at_fraction * (double)cost_ns;
    int64_t read_ns = call->start_ns + hang_ns + (int64_t)waited;
    const Fault *freeze = fault_active(group, card, F_FREEZE, read_ns, outer);
    if (freeze && freeze->start_ns < call->frozen_ns)
        call->frozen_ns = freeze->start_ns;
    call->t_ns = read_ns < call->frozen_ns ? read_ns : call->frozen_ns;
    const Fault *error = fault_active(group, card, F_ERROR, call->start_ns, outer);
    return error ? (nvmlReturn_t)error->value : SUCCESS;
}

/* A card that left the bus is not listed, and its old handles fail. */
static bool is_off_bus(const Card *card)
{
    return fault_active(G_BUS, card->index, F_ERROR, now_ns(), false) != NULL;
}

static Card *card_at(unsigned index)
{
    for (size_t i = 0; i < scenario->n_cards; i++)
        if (!is_off_bus(&scenario->cards[i]) && index-- == 0)
            return &scenario->cards[i];
    return NULL;
}

unsigned index_of(const Card *card)
{
    unsigned index = 0;
    for (Card *at; (at = card_at(index)) && at != card;)
        index++;
    return index;
}

nvmlReturn_t enter_any(void *handle, Group group, Call *call)
{
    call->frozen_ns = INT64_MAX;
    if (!is_initialised())
        return UNINITIALIZED;
    if (!find_handle(handle, call))
        return INVALID_ARGUMENT;
    if (is_off_bus(call->card))
        return GPU_IS_LOST;
    return pay(call, group, true);
}

nvmlReturn_t enter(void *handle, Group group, Call *call)
{
    TRY(enter_any(handle, group, call));
    return call->mig ? NOT_SUPPORTED : SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    NEED(count);
    if (!is_initialised())
        return UNINITIALIZED;
    *count = 0;
    while (card_at(*count))
        ++*count;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    NEED(handle);
    if (!is_initialised())
        return UNINITIALIZED;
    *handle = card_at(index);
    return *handle ? SUCCESS : INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, void **handle)
{
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, void **handle)
{
    NEED(uuid && handle);
    if (!is_initialised())
        return UNINITIALIZED;
    for (size_t i = 0; i < scenario->n_cards; i++) {
        Card *card = &scenario->cards[i];
        if (is_off_bus(card))
            continue;
        if (strcmp(uuid, card->uuid) == 0)
            return *handle = card, SUCCESS;
        for (size_t j = 0; j < card->n_migs; j++)
            if (strcmp(uuid, card->migs[j].uuid) == 0)
                return *handle = &card->migs[j], SUCCESS;
    }
    return NOT_FOUND;
}

static bool read_bus_id(const char *text, unsigned place[3])
{
    return sscanf(text, "%x:%x:%x", &place[0], &place[1], &place[2]) == 3;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **handle)
{
    unsigned asked[3], place[3];
    NEED(bus_id && handle);
    if (!is_initialised())
        return UNINITIALIZED;
    if (!read_bus_id(bus_id, asked))
        return INVALID_ARGUMENT;
    for (size_t i = 0; i < scenario->n_cards; i++)
        if (read_bus_id(scenario->cards[i].pci_bus_id, place)
            && memcmp(place, asked, sizeof place) == 0)
            return *handle = &scenario->cards[i], SUCCESS;
    return NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, void **handle)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, handle);
}

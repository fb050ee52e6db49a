/* The scenario file: lines "key = value"; a line "card = <index>" begins the next card. */
#include "fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Scenario *_Atomic scenario = NULL;
static char error_text[512] = "";

static const char *const GROUP_NAMES[] = {
    "power", "instant", "average", "counter", "fields", "samples", "memory", "processes", "light",
    "gpm", "limits", "setters", "identity", "init", "bus", "*", NULL};
static const char *const FAULT_NAMES[] = {
    "error", "hang", "freeze", "reset", "add_j", "spike_w", "stale", "duplicate",
    "unordered", NULL};
static const char *const SIGNAL_NAMES[] = {
    "constant", "square", "sine", "staircase", "recorded", NULL};
static const char *const PROCESS_NAMES[] = {"compute", "graphics", "mps", NULL};
static const char *const QUANTITY_NAMES[] = {
    "power_w", "utilisation_percent", "memory_utilisation_percent", "memory_used_bytes",
    "temperature_c", "sm_clock_mhz", "power_throttle", "thermal_throttle", "sm_active_percent",
    "sm_occupancy_percent", "tensor_active_percent", "dram_active_percent", NULL};

typedef struct {
    const char *key;
    size_t offset;
} Entry;

#define CARD(field) {#field, offsetof(Card, field)}
#define SENSOR(field) {"sensor." #field, offsetof(Card, sensor) + offsetof(Sensor, field)}
static const Entry CARD_TEXTS[] = {CARD(name), CARD(uuid), CARD(pci_bus_id), {NULL, 0}};
static const Entry CARD_NUMBERS[] = {
    CARD(memory_total_bytes), CARD(architecture), CARD(capability_major), CARD(capability_minor),
    CARD(max_sm_clock_mhz), CARD(memory_clock_mhz), CARD(mig_mode), CARD(cores),
    CARD(memory_bus_bits),
    CARD(limit_w), CARD(min_limit_w), CARD(max_limit_w), CARD(default_limit_w),
    CARD(can_write), CARD(min_sm_clock_mhz), CARD(clock_step_mhz), CARD(low_memory_clock_mhz),
    CARD(busy_w), CARD(static_w), CARD(power_exponent), CARD(memory_power_share),
    CARD(step_s), CARD(memory_time_ratio),
    SENSOR(period_s), SENSOR(update_offset_s), SENSOR(window_s), SENSOR(lag_s), SENSOR(response_s),
    SENSOR(gain), SENSOR(offset_w), SENSOR(power_tick_w), SENSOR(energy_tick_j),
    SENSOR(instant_field), SENSOR(usage_window_s), SENSOR(average_window_s), SENSOR(memory_share),
    SENSOR(module_extra_w),
    SENSOR(counter_period_s), SENSOR(counter_start_j), SENSOR(counter_gained),
    SENSOR(buffer_spacing_s), SENSOR(buffer_jitter_s), SENSOR(buffer_depth), SENSOR(buffer_age_s),
    SENSOR(buffer_window_s), SENSOR(buffer_seed), {NULL, 0}};

static bool fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error_text, sizeof error_text, format, arguments);
    va_end(arguments);
    return false;
}

static int name_index(const char *const names[], const char *name)
{
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static void copy_text(char *target, const char *text)
{
    snprintf(target, TEXT_SIZE, "%s", text);
}

static bool numbers(char **text, double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *end;
        values[i] = strtod(*text, &end);
        if (end == *text)
            return fail("expected %zu numbers, got %zu before '%.40s'", count, i, *text);
        *text = end;
    }
    return true;
}

/* ---- signals */
static double *new_doubles(size_t count)
{
    double *values = calloc(count ? count : 1, sizeof(double));
    if (!values)
        abort();
    return values;
}

static bool read_points(char *text, Signal *s)
{
    double count;
    if (!numbers(&text, &count, 1) || count < 1)
        return fail("a recorded signal needs its number of points first");
    s->n_points = (size_t)count;
    s->point_s = new_doubles(s->n_points);
    s->point_w = new_doubles(s->n_points);
    s->point_j = new_doubles(s->n_points);
    for (size_t i = 0; i < s->n_points; i++) {
        double pair[2] = {0.0, 0.0};
        if (!numbers(&text, pair, 2))
            return false;
        s->point_s[i] = pair[0];
        s->point_w[i] = pair[1];
        if (i > 0)
            s->point_j[i] = s->point_j[i - 1]
                + 0.5 * (s->point_w[i - 1] + pair[1]) * (pair[0] - s->point_s[i - 1]);
    }
    return true;
}

static bool read_staircase(char *text, Signal *s)
{
    double values[3];
    if (!numbers(&text, values, 3))
        return false;
    s->low = values[0], s->high = values[1], s->step_s = values[2];
    s->seed = strtoull(text, NULL, 10); /* 64 bits do not fit a double */
    s->prefix = calloc(1, sizeof *s->prefix);
    if (!s->prefix)
        abort();
    pthread_mutex_init(&s->prefix->lock, NULL);
    return true;
}

static bool read_wave(char *text, Signal *s)
{
    double v[5];
    if (!numbers(&text, v, s->kind == SQUARE ? 5 : s->kind == SINE ? 4 : 1))
        return false;
    if (s->kind == CONSTANT)
        s->low = v[0];
    else if (s->kind == SQUARE)
        s->low = v[0], s->high = v[1], s->period_s = v[2], s->duty = v[3], s->phase_s = v[4];
    else
        s->mean = v[0], s->amplitude = v[1], s->period_s = v[2], s->phase_s = v[3];
    return true;
}

static bool read_signal(const char *quantity, char *text, Card *card)
{
    int index = name_index(QUANTITY_NAMES, quantity), used = 0;
    char kind_name[TEXT_SIZE];
    if (index < 0 || sscanf(text, "%95s%n", kind_name, &used) != 1)
        return fail("unknown quantity or empty signal '%s'", quantity);
    int kind = name_index(SIGNAL_NAMES, kind_name);
    if (kind < 0)
        return fail("unknown signal kind '%s'", kind_name);
    Signal *s = &card->signals[index];
    memset(s, 0, sizeof *s);
    s->kind = (SignalKind)kind;
    if (s->kind == RECORDED)
        return read_points(text + used, s);
    return s->kind == STAIRCASE ? read_staircase(text + used, s) : read_wave(text + used, s);
}

/* ---- parts of a card */
static bool read_latency(const char *group_name, char *text, Card *card)
{
    int group = name_index(GROUP_NAMES, group_name);
    double v[3];
    if (group < 0 || group >= GROUPS)
        return fail("unknown function group '%s'", group_name);
    if (!numbers(&text, v, 3))
        return false;
    card->latencies[group] = (Latency){v[0], v[1], v[2]};
    return true;
}

static bool read_mig(const char *text, Card *card)
{
    if (card->n_migs == MAX_MIGS)
        return fail("more than %d MIG instances", MAX_MIGS);
    Mig *mig = &card->migs[card->n_migs++];
    mig->parent = card->index;
    if (sscanf(text, "%lf %lf %lf %lf %95s %95[^\n]", &mig->gpu_instance, &mig->compute_instance,
               &mig->memory_total, &mig->memory_used, mig->uuid, mig->name) != 6)
        return fail("a MIG instance has gi ci total used uuid name, got '%s'", text);
    return true;
}

/* A time beyond all scenarios means that there is no end. */
static int64_t end_ns_of(double end_s)
{
    return end_s > 9e9 ? INT64_MAX : to_ns(end_s);
}

static bool read_process(const char *text, Card *card)
{
    char kind_name[TEXT_SIZE];
    unsigned long long used_bytes;
    double start_s, end_s;
    if (card->n_processes == MAX_PROCESSES)
        return fail("more than %d processes", MAX_PROCESSES);
    RunningProcess *process = &card->processes[card->n_processes++];
    if (sscanf(text, "%95s %u %llu %u %u %lf %lf", kind_name, &process->pid, &used_bytes,
               &process->gpu_instance, &process->compute_instance, &start_s, &end_s) != 7)
        return fail("a process has kind pid bytes gi ci start end, got '%s'", text);
    int kind = name_index(PROCESS_NAMES, kind_name);
    if (kind < 0)
        return fail("unknown process kind '%s'", kind_name);
    process->kind = (ProcessKind)kind;
    process->used_bytes = used_bytes;
    process->start_ns = to_ns(start_s);
    process->end_ns = end_ns_of(end_s);
    return true;
}

static bool read_card_key(const char *key, char *text, Card *card)
{
    if (strncmp(key, "signal.", 7) == 0)
        return read_signal(key + 7, text, card);
    if (strncmp(key, "latency.", 8) == 0)
        return read_latency(key + 8, text, card);
    if (strcmp(key, "mig") == 0)
        return read_mig(text, card);
    if (strcmp(key, "process") == 0)
        return read_process(text, card);
    for (const Entry *entry = CARD_TEXTS; entry->key; entry++)
        if (strcmp(entry->key, key) == 0)
            return copy_text((char *)card + entry->offset, text), true;
    for (const Entry *entry = CARD_NUMBERS; entry->key; entry++)
        if (strcmp(entry->key, key) == 0)
            return numbers(&text, (double *)((char *)card + entry->offset), 1);
    return fail("unknown key '%s'", key);
}

/* ---- the whole */
static bool read_fault(const char *text, Scenario *s)
{
    char group_name[TEXT_SIZE], kind_name[TEXT_SIZE];
    double start_s, end_s;
    if (s->n_faults == MAX_FAULTS)
        return fail("more than %d faults", MAX_FAULTS);
    Fault *fault = &s->faults[s->n_faults++];
    if (sscanf(text, "%95s %d %lf %lf %95s %lf", group_name, &fault->card, &start_s, &end_s,
               kind_name, &fault->value) != 6)
        return fail("a fault has group card start end kind value, got '%s'", text);
    int group = name_index(GROUP_NAMES, group_name), kind = name_index(FAULT_NAMES, kind_name);
    if (group < 0 || kind < 0)
        return fail("unknown group or kind of fault in '%s'", text);
    fault->group = (Group)group;
    fault->kind = (FaultKind)kind;
    fault->start_ns = to_ns(start_s);
    fault->end_ns = end_ns_of(end_s);
    return true;
}

static bool read_key(const char *key, char *text, Scenario *s)
{
    if (strcmp(key, "epoch_ns") == 0)
        return s->epoch_ns = strtoll(text, NULL, 10), true;
    if (strcmp(key, "driver_version") == 0)
        return copy_text(s->driver_version, text), true;
    if (strcmp(key, "nvml_version") == 0)
        return copy_text(s->nvml_version, text), true;
    if (strcmp(key, "cuda_version") == 0)
        return numbers(&text, &s->cuda_version, 1);
    if (strcmp(key, "fault") == 0)
        return read_fault(text, s);
    if (strcmp(key, "card") == 0) {
        if (s->n_cards == MAX_CARDS)
            return fail("more than %d cards", MAX_CARDS);
        s->cards[s->n_cards].index = (int)s->n_cards;
        return s->n_cards++, true;
    }
    if (s->n_cards == 0)
        return fail("unknown key '%s' before the first card", key);
    return read_card_key(key, text, &s->cards[s->n_cards - 1]);
}

static bool read_line(char *line, Scenario *s)
{
    line[strcspn(line, "\r\n")] = '\0';
    char *equals = strstr(line, " = ");
    if (line[0] == '\0' || line[0] == '#')
        return true;
    if (!equals)
        return fail("expected 'key = value', got '%.60s'", line);
    *equals = '\0';
    return read_key(line, equals + 3, s);
}

static bool read_file(FILE *file, Scenario *s, size_t *line_number)
{
    char *line = NULL;
    size_t size = 0;
    bool good = true;
    while (good && getline(&line, &size, file) >= 0) {
        ++*line_number;
        good = read_line(line, s);
    }
    free(line);
    return good;
}

/* The scenario before is not freed: a thread may still hang inside one of its cards. */
int scenario_load(const char *path)
{
    size_t line_number = 0;
    FILE *file = fopen(path, "r");
    if (!file)
        return fail("cannot open the scenario %s", path), -1;
    Scenario *loaded = calloc(1, sizeof *loaded);
    if (!loaded)
        abort();
    bool good = read_file(file, loaded, &line_number);
    fclose(file);
    if (!good) {
        char reason[400];
        snprintf(reason, sizeof reason, "%.399s", error_text);
        return fail("%.60s:%zu: %s", path, line_number, reason), -1;
    }
    loaded->log = open_log(path);
    if (!loaded->log)
        return fail("cannot open the log beside %s", path), -1;
    scenario = loaded;
    return 0;
}

const char *scenario_error(void)
{
    return error_text;
}

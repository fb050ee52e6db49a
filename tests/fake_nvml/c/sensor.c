/* Sensors: what a card's readings make of its signal. All are functions of the time alone. */
#include "fake.h"

#include <math.h>
#include <stdatomic.h>

int64_t to_ns(double t_s)
{
    return (int64_t)llround(t_s * 1e9);
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* The last moment of a regular update; integers, so that an update at 0.3 s is seen at 0.3 s. */
static int64_t update_ns(const Sensor *sensor, double period_s, int64_t t_ns)
{
    int64_t period_ns = to_ns(period_s), offset_ns = to_ns(sensor->update_offset_s);
    if (period_ns <= 0)
        return t_ns;
    return floor_div(t_ns - offset_ns, period_ns) * period_ns + offset_ns;
}

const Fault *fault_active(Group group, int card, FaultKind kind, int64_t t_ns, bool any)
{
    Scenario *loaded = scenario;
    for (size_t i = 0; i < loaded->n_faults; i++) {
        const Fault *fault = &loaded->faults[i];
        bool meant = fault->group == group || (any && fault->group == G_ANY);
        bool here = fault->card < 0 || fault->card == card;
        if (meant && here && fault->kind == kind && fault->start_ns <= t_ns && t_ns < fault->end_ns)
            return fault;
    }
    return NULL;
}

/* Lets all faults begin at this moment. */
EXPORT void fakeNvmlBeginFaults(void)
{
    int64_t t_ns = now_ns();
    for (size_t i = 0; i < scenario->n_faults; i++)
        scenario->faults[i].start_ns = t_ns;
}

static double seen_power_w(const Card *card, Group group, int64_t moment_ns, double window_s)
{
    const Sensor *sensor = &card->sensor;
    double t_s = (double)moment_ns * 1e-9 - sensor->lag_s;
    double mean_w = card_box_mean(card, t_s, window_s, sensor->response_s);
    const Fault *spike = fault_active(group, card->index, F_SPIKE, moment_ns, true);
    double power_w = sensor->gain * mean_w + sensor->offset_w + (spike ? spike->value : 0.0);
    if (sensor->power_tick_w > 0.0)
        power_w = round(power_w / sensor->power_tick_w) * sensor->power_tick_w;
    return fmax(power_w, 0.0);
}

double sensor_power_w(const Card *card, Group group, int64_t t_ns, double window_s)
{
    int64_t moment_ns = update_ns(&card->sensor, card->sensor.period_s, t_ns);
    return seen_power_w(card, group, moment_ns, window_s);
}

static bool touches_counter(const Fault *fault, const Card *card, int64_t t_ns)
{
    bool here = fault->card < 0 || fault->card == card->index;
    bool meant = fault->group == G_COUNTER || fault->group == G_ANY;
    return here && meant && fault->start_ns <= t_ns;
}

/* Energy since the epoch or since the last reset, plus the jumps since then. */
uint64_t sensor_counter_mj(const Card *card, int64_t t_ns)
{
    const Sensor *sensor = &card->sensor;
    int64_t seen_ns = update_ns(sensor, sensor->counter_period_s, t_ns), since_ns = INT64_MIN;
    double start_s = 0.0, energy_j = sensor->counter_start_j;
    const Scenario *loaded = scenario;
    for (size_t i = 0; i < loaded->n_faults; i++) {
        const Fault *fault = &loaded->faults[i];
        if (fault->kind != F_RESET || !touches_counter(fault, card, seen_ns)
            || fault->start_ns < since_ns)
            continue;
        since_ns = fault->start_ns;
        start_s = (double)since_ns * 1e-9;
        energy_j = 0.0;
    }
    for (size_t i = 0; i < loaded->n_faults; i++) {
        const Fault *fault = &loaded->faults[i];
        bool later = fault->start_ns >= since_ns;
        if (fault->kind == F_ADD && later && touches_counter(fault, card, seen_ns))
            energy_j += fault->value;
    }
    double end_s = (double)seen_ns * 1e-9;
    double true_j = card_energy(card, start_s, end_s);
    energy_j += sensor->counter_gained > 0.0
        ? sensor->gain * true_j + sensor->offset_w * (end_s - start_s) : true_j;
    /* The half microjoule keeps 12.3 J from becoming 12299 mJ by rounding. */
    double tick_j = fmax(sensor->energy_tick_j, 1e-3);
    return (uint64_t)fmax(floor((energy_j + 5e-7) / tick_j) * tick_j * 1e3 + 0.5, 0.0);
}

/* ---- the driver's sample buffer: stamps in whole microseconds, like the epoch */
static int64_t sample_stamp_ns(const Sensor *sensor, int64_t index)
{
    double swing = 2.0 * uniform((uint64_t)sensor->buffer_seed, index) - 1.0;
    double t_s = (double)index * sensor->buffer_spacing_s + swing * sensor->buffer_jitter_s;
    return (int64_t)llround(t_s * 1e6) * 1000;
}

static size_t add_sample(const Card *card, int64_t index, uint64_t last_seen_us, int64_t t_ns,
                         PowerSample *sample)
{
    int64_t stamp_ns = sample_stamp_ns(&card->sensor, index);
    uint64_t stamp_us = (uint64_t)((stamp_ns + scenario->epoch_ns) / 1000);
    bool stale = fault_active(G_SAMPLES, card->index, F_STALE, t_ns, true);
    if (stamp_us <= last_seen_us && !stale)
        return 0;
    sample->stamp_us = stamp_us;
    sample->power_w = seen_power_w(card, G_SAMPLES, stamp_ns, card->sensor.buffer_window_s);
    return 1;
}

static int64_t newest_index(const Card *card, int64_t t_ns)
{
    const Sensor *sensor = &card->sensor;
    int64_t visible_ns = t_ns - to_ns(sensor->buffer_age_s);
    double latest_s = (double)visible_ns * 1e-9 + sensor->buffer_jitter_s;
    int64_t index = (int64_t)floor(latest_s / sensor->buffer_spacing_s) + 1;
    while (sample_stamp_ns(sensor, index) > visible_ns)
        index--;
    return index;
}

static void swap_neighbours(PowerSample *samples, size_t count)
{
    for (size_t i = 0; i + 1 < count; i += 2) {
        PowerSample first = samples[i];
        samples[i] = samples[i + 1];
        samples[i + 1] = first;
    }
}

/* Samples newer than last_seen_us, oldest first: where the space ends the newest are left for the
 * next call. Faults repeat each fifth sample or swap neighbours. */
size_t sensor_samples(const Card *card, int64_t t_ns, uint64_t last_seen_us, PowerSample *samples,
                      size_t capacity)
{
    bool twice = fault_active(G_SAMPLES, card->index, F_DUPLICATE, t_ns, true);
    int64_t newest = newest_index(card, t_ns);
    size_t count = 0;
    for (int64_t i = newest - (int64_t)card->sensor.buffer_depth + 1; i <= newest; i++) {
        if (count == capacity || !add_sample(card, i, last_seen_us, t_ns, &samples[count]))
            continue;
        count++;
        if (twice && i % 5 == 0 && count < capacity) {
            samples[count] = samples[count - 1];
            count++;
        }
    }
    if (fault_active(G_SAMPLES, card->index, F_UNORDERED, t_ns, true))
        swap_neighbours(samples, count);
    return count;
}

/* ---- what a call costs: log-normal through the median and the 99th percentile, by call number */
static const double NORMAL_P99 = 2.3263478740408408;

int64_t latency_ns(Card *card, Group group)
{
    const Latency *latency = &card->latencies[group];
    int64_t call = (int64_t)atomic_fetch_add(&card->calls[group], 1);
    if (latency->median_s <= 0.0)
        return 0;
    uint64_t seed = mix64((uint64_t)(group + GROUPS * card->index + 1));
    double radius = sqrt(-2.0 * log(1.0 - uniform(seed, 2 * call)));
    double normal = radius * cos(2.0 * M_PI * uniform(seed, 2 * call + 1));
    double sigma = log(latency->p99_s / latency->median_s) / NORMAL_P99;
    double cost_s = fmin(latency->median_s * exp(sigma * normal), 3.0 * latency->p99_s);
    return to_ns(cost_s);
}

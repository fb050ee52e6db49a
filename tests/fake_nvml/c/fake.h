/* What the parts of the fake NVML share: a scenario as plain structs, times in ns since its epoch.
 *
 * Whatever a card answers is a pure function of the scenario, of the log of changed settings
 * (changes.c) and of time, so that every process that loads the same scenario sees the same card.
 * Only call numbers (latency) are state of a process.
 */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The library is built with -fvisibility=hidden: loaded with RTLD_GLOBAL, a plain name such as
 * signal_energy would otherwise take the place of someone else's. */
#define EXPORT __attribute__((visibility("default")))

enum { MAX_CARDS = 16, MAX_MIGS = 7, MAX_PROCESSES = 32, MAX_FAULTS = 64, TEXT_SIZE = 96 };

/* ---- signal.c */
typedef enum { CONSTANT, SQUARE, SINE, STAIRCASE, RECORDED } SignalKind;

typedef struct {
    pthread_mutex_t lock;
    double *sums; /* integral from 0 to each block's start */
    int64_t known;
} Prefix;

typedef struct {
    SignalKind kind;
    double low, high, mean, amplitude; /* CONSTANT uses low */
    double period_s, duty, phase_s, step_s;
    uint64_t seed;
    size_t n_points;
    double *point_s, *point_w, *point_j; /* RECORDED; point_j is the integral up to the point */
    Prefix *prefix;                      /* STAIRCASE */
} Signal;

double signal_power(const Signal *signal, double t_s);
double signal_energy(const Signal *signal, double start_s, double end_s);
double signal_filtered(const Signal *signal, double t_s, double response_s);
uint64_t mix64(uint64_t z);
double uniform(uint64_t seed, int64_t index);

/* ---- scenario.c */
typedef enum {
    G_POWER, G_INSTANT, G_AVERAGE, G_COUNTER, G_FIELDS, G_SAMPLES, G_MEMORY, G_PROCESSES, G_LIGHT,
    G_GPM, G_LIMITS, G_SETTERS, G_IDENTITY, G_INIT, G_BUS, GROUPS, G_ANY = GROUPS
} Group;

typedef enum {
    F_ERROR, F_HANG, F_FREEZE, F_RESET, F_ADD, F_SPIKE, F_STALE, F_DUPLICATE, F_UNORDERED
} FaultKind;

typedef enum {
    Q_POWER, Q_UTILISATION, Q_MEMORY_UTILISATION, Q_MEMORY_USED, Q_TEMPERATURE, Q_SM_CLOCK,
    Q_POWER_THROTTLE, Q_THERMAL_THROTTLE, Q_SM_ACTIVE, Q_SM_OCCUPANCY, Q_TENSOR_ACTIVE,
    Q_DRAM_ACTIVE, QUANTITIES
} Quantity;

typedef struct {
    Group group;
    int card; /* -1: all */
    FaultKind kind;
    int64_t start_ns, end_ns;
    double value;
} Fault;

typedef struct {
    double median_s, p99_s, read_at_fraction;
} Latency;

/* Below zero means "this card does not offer it" wherever a period or a share may be absent. */
typedef struct {
    double period_s, update_offset_s, window_s, lag_s, response_s;
    double gain, offset_w, power_tick_w, energy_tick_j;
    double instant_field, usage_window_s, average_window_s, memory_share, module_extra_w;
    double counter_period_s, counter_start_j, counter_gained;
    double buffer_spacing_s, buffer_jitter_s, buffer_depth, buffer_age_s, buffer_window_s;
    double buffer_seed;
} Sensor;

typedef struct {
    double gpu_instance, compute_instance, memory_total, memory_used;
    char uuid[TEXT_SIZE], name[TEXT_SIZE];
    int parent;
} Mig;

typedef enum { P_COMPUTE, P_GRAPHICS, P_MPS } ProcessKind;

typedef struct {
    ProcessKind kind;
    unsigned pid, gpu_instance, compute_instance;
    uint64_t used_bytes;
    int64_t start_ns, end_ns;
} RunningProcess;

typedef struct {
    int index;
    char name[TEXT_SIZE], uuid[TEXT_SIZE], pci_bus_id[TEXT_SIZE];
    double memory_total_bytes, architecture, capability_major, capability_minor;
    double max_sm_clock_mhz, memory_clock_mhz, mig_mode;
    double cores, memory_bus_bits; /* 0: the driver does not say */
    double limit_w, min_limit_w, max_limit_w, default_limit_w;
    double can_write, min_sm_clock_mhz, clock_step_mhz, low_memory_clock_mhz;
    double busy_w, static_w, power_exponent, memory_power_share; /* busy_w 0: no model of power */
    double step_s, memory_time_ratio;
    Signal signals[QUANTITIES];
    Sensor sensor;
    Latency latencies[GROUPS];
    _Atomic uint64_t calls[GROUPS];
    size_t n_migs, n_processes;
    Mig migs[MAX_MIGS];
    RunningProcess processes[MAX_PROCESSES];
} Card;

typedef struct Log Log;

typedef struct {
    int64_t epoch_ns; /* Unix */
    Log *log;
    char driver_version[TEXT_SIZE], nvml_version[TEXT_SIZE];
    double cuda_version;
    size_t n_cards, n_faults;
    Card cards[MAX_CARDS];
    Fault faults[MAX_FAULTS];
} Scenario;

extern Scenario *_Atomic scenario; /* NULL: no driver on this machine */
int scenario_load(const char *path);
const char *scenario_error(void);

/* ---- changes.c: a time span in which the settings of a card are constant */
typedef enum { SET_LIMIT, SET_CLOCK, SET_MEMORY_CLOCK, SET_LOAD } ChangeKind;

typedef struct {
    double limit_w, clock_mhz, memory_clock_mhz, load; /* clocks 0: not locked */
    int64_t start_ns, end_ns;
    size_t next; /* of the log: the change at end_ns */
} Segment;

Log *open_log(const char *scenario_path);
Segment first_segment(const Card *card);
bool next_segment(const Card *card, Segment *segment);
Segment segment_at(const Card *card, int64_t t_ns);

/* ---- card_power.c */
double card_power(const Card *card, double t_s);
double card_energy(const Card *card, double start_s, double end_s);
double card_filtered(const Card *card, double t_s, double response_s);
double card_box_mean(const Card *card, double t_s, double window_s, double response_s);
double card_step_s(const Card *card, int64_t t_ns);
double limited_s(const Card *card, double t_s);
double relative_clock(const Card *card, const Segment *at);
bool is_limited(const Card *card, const Segment *at);

/* ---- sensor.c */
typedef struct {
    uint64_t stamp_us; /* Unix */
    double power_w;
} PowerSample;

int64_t to_ns(double t_s);
const Fault *fault_active(Group group, int card, FaultKind kind, int64_t t_ns, bool any);
double sensor_power_w(const Card *card, Group group, int64_t t_ns, double window_s);
uint64_t sensor_counter_mj(const Card *card, int64_t t_ns);
size_t sensor_samples(const Card *card, int64_t t_ns, uint64_t last_seen_us, PowerSample *samples,
                      size_t capacity);
int64_t latency_ns(Card *card, Group group);

/* ---- clock.c */
int64_t now_ns(void);                /* since the epoch of the scenario */
void spend_until_ns(int64_t *t_ns, int64_t duration_ns);

#endif

/* Signals with closed forms: value, integral, and both behind a first-order low-pass.
 *
 * The filter y obeys tau y' = x - y, so the integral of y over [a, b] is the integral of x minus
 * tau (y(b) - y(a)): no numeric convolution is needed anywhere.
 * signals.py has the same formulas for value and integral; a test compares the two.
 */
#include "fake.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCK_STEPS = 256 };
static const double FORGOTTEN = 40.0; /* response times after which exp(-x) is below rounding */

/* splitmix64 (Steele, Lea, Flood 2014): number `index` of the stream `seed`, without the others. */
uint64_t mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double uniform(uint64_t seed, int64_t index)
{
    return (double)(mix64(seed + ((uint64_t)index + 1) * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
}

/* ---- square */
static double square_energy_to(const Signal *s, double t_s)
{
    double on_s = s->duty * s->period_s, turns = floor(t_s / s->period_s);
    double rest_s = t_s - turns * s->period_s;
    double in_turn = s->high * fmin(rest_s, on_s) + s->low * fmax(rest_s - on_s, 0.0);
    return turns * (s->high * on_s + s->low * (s->period_s - on_s)) + in_turn;
}

static double square_rest(const Signal *s, double t_s)
{
    double shifted_s = t_s - s->phase_s;
    return shifted_s - floor(shifted_s / s->period_s) * s->period_s;
}

static double square_filtered(const Signal *s, double t_s, double tau_s)
{
    double on_s = s->duty * s->period_s, rest_s = square_rest(s, t_s);
    double peak = -expm1(-on_s / tau_s) / -expm1(-s->period_s / tau_s); /* at the falling edge */
    double foot = peak * exp(-(s->period_s - on_s) / tau_s);
    double level = rest_s < on_s ? 1.0 + (foot - 1.0) * exp(-rest_s / tau_s)
                                 : peak * exp(-(rest_s - on_s) / tau_s);
    return s->low + (s->high - s->low) * level;
}

/* ---- sine */
static double sine_angle(const Signal *s, double t_s)
{
    return 2.0 * M_PI * fmod(t_s - s->phase_s, s->period_s) / s->period_s;
}

static double sine_energy(const Signal *s, double start_s, double end_s)
{
    double swing = cos(sine_angle(s, start_s)) - cos(sine_angle(s, end_s));
    return s->mean * (end_s - start_s) + s->amplitude * s->period_s / (2.0 * M_PI) * swing;
}

static double sine_filtered(const Signal *s, double t_s, double tau_s)
{
    double omega_tau = 2.0 * M_PI * tau_s / s->period_s;
    double angle = sine_angle(s, t_s) - atan(omega_tau);
    return s->mean + s->amplitude / sqrt(1.0 + omega_tau * omega_tau) * sin(angle);
}

/* ---- staircase */
static double step_level(const Signal *s, int64_t index)
{
    return s->low + (s->high - s->low) * uniform(s->seed, index);
}

static double steps_energy(const Signal *s, int64_t first, int64_t end)
{
    double sum = 0.0;
    for (int64_t i = first; i < end; i++)
        sum += step_level(s, i);
    return sum * s->step_s;
}

/* The counter asks for the integral since the epoch at each call: sums of whole blocks are kept. */
static double blocks_energy(const Signal *s, int64_t block)
{
    Prefix *prefix = s->prefix;
    pthread_mutex_lock(&prefix->lock);
    if (block >= prefix->known) {
        prefix->sums = realloc(prefix->sums, (size_t)(2 * block + 2) * sizeof(double));
        if (!prefix->sums)
            abort();
        for (int64_t i = prefix->known; i < 2 * block + 2; i++)
            prefix->sums[i] = i == 0 ? 0.0 : prefix->sums[i - 1]
                + steps_energy(s, (i - 1) * BLOCK_STEPS, i * BLOCK_STEPS);
        prefix->known = 2 * block + 2;
    }
    double sum = prefix->sums[block];
    pthread_mutex_unlock(&prefix->lock);
    return sum;
}

static double staircase_energy_to(const Signal *s, double t_s)
{
    int64_t index = (int64_t)floor(t_s / s->step_s);
    double part = step_level(s, index) * (t_s - (double)index * s->step_s);
    if (index < 0)
        return part - steps_energy(s, index, 0);
    int64_t block = index / BLOCK_STEPS;
    return blocks_energy(s, block) + steps_energy(s, block * BLOCK_STEPS, index) + part;
}

static double staircase_filtered(const Signal *s, double t_s, double tau_s)
{
    double sum = 0.0, newer_weight = 1.0; /* exp(-(age of the step's end) / tau) */
    int64_t index = (int64_t)floor(t_s / s->step_s);
    for (double age_s = 0.0; age_s < FORGOTTEN * tau_s; index--) {
        age_s = t_s - (double)index * s->step_s;
        double older_weight = exp(-age_s / tau_s);
        sum += step_level(s, index) * (newer_weight - older_weight);
        newer_weight = older_weight;
    }
    return sum;
}

/* ---- recorded: straight lines between the points, level before the first and after the last */
static size_t point_after(const Signal *s, double t_s)
{
    size_t low = 0, high = s->n_points;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (s->point_s[middle] <= t_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static double recorded_power(const Signal *s, double t_s)
{
    size_t i = point_after(s, t_s);
    if (i == 0)
        return s->point_w[0];
    if (i == s->n_points)
        return s->point_w[i - 1];
    double fraction = (t_s - s->point_s[i - 1]) / (s->point_s[i] - s->point_s[i - 1]);
    return s->point_w[i - 1] + fraction * (s->point_w[i] - s->point_w[i - 1]);
}

static double recorded_energy_to(const Signal *s, double t_s)
{
    size_t i = point_after(s, t_s);
    if (i == 0)
        return s->point_w[0] * (t_s - s->point_s[0]);
    double mean_w = 0.5 * (s->point_w[i - 1] + recorded_power(s, t_s));
    return s->point_j[i - 1] + mean_w * (t_s - s->point_s[i - 1]);
}

static double recorded_filtered(const Signal *s, double t_s, double tau_s)
{
    double sum = 0.0, end_s = t_s;
    for (size_t i = point_after(s, t_s); i > 0; i--) {
        double start_s = s->point_s[i - 1], end_w = recorded_power(s, end_s);
        double slope = 0.0;
        if (i < s->n_points) {
            slope = (s->point_w[i] - s->point_w[i - 1]) / (s->point_s[i] - start_s);
            end_w = s->point_w[i - 1] + slope * (end_s - start_s);
        }
        sum += exp(-(t_s - end_s) / tau_s) * (end_w - tau_s * slope)
            - exp(-(t_s - start_s) / tau_s) * (s->point_w[i - 1] - tau_s * slope);
        end_s = start_s;
        if (t_s - end_s > FORGOTTEN * tau_s)
            return sum;
    }
    return sum + exp(-(t_s - end_s) / tau_s) * s->point_w[0];
}

/* ---- all kinds */
double signal_power(const Signal *s, double t_s)
{
    switch (s->kind) {
    case SQUARE: return square_rest(s, t_s) < s->duty * s->period_s ? s->high : s->low;
    case SINE: return s->mean + s->amplitude * sin(sine_angle(s, t_s));
    case STAIRCASE: return step_level(s, (int64_t)floor(t_s / s->step_s));
    case RECORDED: return recorded_power(s, t_s);
    default: return s->low;
    }
}

double signal_energy(const Signal *s, double start_s, double end_s)
{
    switch (s->kind) {
    case SQUARE:
        return square_energy_to(s, end_s - s->phase_s) - square_energy_to(s, start_s - s->phase_s);
    case SINE: return sine_energy(s, start_s, end_s);
    case STAIRCASE: return staircase_energy_to(s, end_s) - staircase_energy_to(s, start_s);
    case RECORDED: return recorded_energy_to(s, end_s) - recorded_energy_to(s, start_s);
    default: return s->low * (end_s - start_s);
    }
}

double signal_filtered(const Signal *s, double t_s, double response_s)
{
    if (response_s <= 0.0)
        return signal_power(s, t_s);
    switch (s->kind) {
    case SQUARE: return square_filtered(s, t_s, response_s);
    case SINE: return sine_filtered(s, t_s, response_s);
    case STAIRCASE: return staircase_filtered(s, t_s, response_s);
    case RECORDED: return recorded_filtered(s, t_s, response_s);
    default: return s->low;
    }
}

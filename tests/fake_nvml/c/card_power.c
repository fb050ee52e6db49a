/* Power of a card under its settings: its signal, scaled by what clocks, limit and load allow.
 *
 * P = static + load s (signal - static), with s = x^exponent (1 - q + q y) for the clock x and the
 * memory clock y relative to the highest; a limit lowers x until P of a busy card is the limit.
 * A step takes ((x^-4 + (r/y)^4) / (1 + r^4))^(1/4) of its time at the highest clocks, where r is
 * the time that memory takes relative to computing. model.py has the same formulas.
 */
#include "fake.h"

#include <math.h>

static const double FORGOTTEN = 40.0; /* response times after which exp(-x) is below rounding */

static double scaled(const Card *card, double x, double y)
{
    return pow(x, card->power_exponent) * (1.0 - card->memory_power_share * (1.0 - y));
}

static double memory_share_of_highest(const Card *card, const Segment *at)
{
    return at->memory_clock_mhz > 0.0 ? at->memory_clock_mhz / card->memory_clock_mhz : 1.0;
}

/* The clock relative to the highest one. */
double relative_clock(const Card *card, const Segment *at)
{
    double x = at->clock_mhz > 0.0 ? at->clock_mhz / card->max_sm_clock_mhz : 1.0;
    if (card->busy_w <= 0.0)
        return x;
    double dynamic_w = (card->busy_w - card->static_w)
        * scaled(card, 1.0, memory_share_of_highest(card, at));
    double allowed_w = fmax(at->limit_w - card->static_w, 0.0);
    double lowest = card->min_sm_clock_mhz / card->max_sm_clock_mhz;
    return fmin(x, fmax(lowest, pow(allowed_w / dynamic_w, 1.0 / card->power_exponent)));
}

bool is_limited(const Card *card, const Segment *at)
{
    double x = at->clock_mhz > 0.0 ? at->clock_mhz / card->max_sm_clock_mhz : 1.0;
    return card->busy_w > 0.0 && at->load > 0.0 && relative_clock(card, at) < x;
}

/* P = offset_w + scale * signal. */
static double scale_at(const Card *card, const Segment *at, double *offset_w)
{
    *offset_w = 0.0;
    if (card->busy_w <= 0.0)
        return 1.0;
    double s = at->load * scaled(card, relative_clock(card, at), memory_share_of_highest(card, at));
    *offset_w = card->static_w * (1.0 - s);
    return s;
}

double card_power(const Card *card, double t_s)
{
    double offset_w;
    Segment at = segment_at(card, to_ns(t_s));
    double scale = scale_at(card, &at, &offset_w);
    return offset_w + scale * signal_power(&card->signals[Q_POWER], t_s);
}

static double start_s_of(const Segment *at)
{
    return at->start_ns == INT64_MIN ? -INFINITY : (double)at->start_ns * 1e-9;
}

static double end_s_of(const Segment *at)
{
    return at->end_ns == INT64_MAX ? INFINITY : (double)at->end_ns * 1e-9;
}

double card_energy(const Card *card, double start_s, double end_s)
{
    if (card->busy_w <= 0.0)
        return signal_energy(&card->signals[Q_POWER], start_s, end_s);
    if (end_s < start_s)
        return -card_energy(card, end_s, start_s);
    double sum = 0.0, offset_w;
    Segment at = first_segment(card);
    do {
        double from_s = fmax(start_s, start_s_of(&at)), to_s = fmin(end_s, end_s_of(&at));
        double scale = scale_at(card, &at, &offset_w);
        if (from_s < to_s)
            sum += offset_w * (to_s - from_s)
                + scale * signal_energy(&card->signals[Q_POWER], from_s, to_s);
    } while (end_s_of(&at) < end_s && next_segment(card, &at));
    return sum;
}

double card_filtered(const Card *card, double t_s, double response_s)
{
    const Signal *signal = &card->signals[Q_POWER];
    if (card->busy_w <= 0.0)
        return signal_filtered(signal, t_s, response_s);
    if (response_s <= 0.0)
        return card_power(card, t_s);
    double level_w = 0.0, offset_w;
    bool has_level = false;
    Segment at = first_segment(card);
    do {
        double from_s = start_s_of(&at), to_s = fmin(t_s, end_s_of(&at));
        if (to_s < t_s - FORGOTTEN * response_s)
            continue;
        double scale = scale_at(card, &at, &offset_w);
        double kept = has_level ? exp(-(to_s - from_s) / response_s) : 0.0;
        double before_w = has_level ? signal_filtered(signal, from_s, response_s) : 0.0;
        level_w = level_w * kept + offset_w * (1.0 - kept)
            + scale * (signal_filtered(signal, to_s, response_s) - before_w * kept);
        has_level = true;
    } while (end_s_of(&at) < t_s && next_segment(card, &at));
    return level_w;
}

double card_box_mean(const Card *card, double t_s, double window_s, double response_s)
{
    if (window_s <= 0.0)
        return card_filtered(card, t_s, response_s);
    double start_s = t_s - window_s, held_j = 0.0; /* what the filter still keeps back */
    if (response_s > 0.0)
        held_j = response_s
            * (card_filtered(card, t_s, response_s) - card_filtered(card, start_s, response_s));
    return (card_energy(card, start_s, t_s) - held_j) / window_s;
}

/* Time of a step now, s. */
double card_step_s(const Card *card, int64_t t_ns)
{
    Segment at = segment_at(card, t_ns);
    double x = relative_clock(card, &at), y = memory_share_of_highest(card, &at);
    double r = card->memory_time_ratio;
    return card->step_s * pow((pow(x, -4.0) + pow(r / y, 4.0)) / (1.0 + pow(r, 4.0)), 0.25);
}

/* Time since the epoch in which the limit has lowered the clock, s. */
double limited_s(const Card *card, double t_s)
{
    double sum_s = 0.0;
    Segment at = first_segment(card);
    do {
        double from_s = fmax(0.0, start_s_of(&at)), to_s = fmin(t_s, end_s_of(&at));
        sum_s += is_limited(card, &at) ? fmax(to_s - from_s, 0.0) : 0.0;
    } while (end_s_of(&at) < t_s && next_segment(card, &at));
    return sum_s;
}

/* Power, energy, limits, and the field values and sample buffer that carry them. */
#include "api.h"

#include <math.h>

enum { MAX_SAMPLES = 1024 };

static unsigned milliwatts(double power_w)
{
    return (unsigned)(power_w * 1e3 + 0.5);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(void *handle, unsigned *power_mw)
{
    Call call;
    NEED(power_mw);
    TRY(enter(handle, G_POWER, &call));
    double window_s = call.card->sensor.usage_window_s;
    if (window_s < 0.0)
        return NOT_SUPPORTED;
    *power_mw = milliwatts(sensor_power_w(call.card, G_POWER, call.t_ns, window_s));
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *energy_mj)
{
    Call call;
    NEED(energy_mj);
    TRY(enter(handle, G_COUNTER, &call));
    if (call.card->sensor.counter_period_s < 0.0)
        return NOT_SUPPORTED;
    *energy_mj = sensor_counter_mj(call.card, call.t_ns);
    return SUCCESS;
}

/* ---- limits */
static unsigned limit_mw_at(const Call *call)
{
    return milliwatts(segment_at(call->card, INT64_MAX).limit_w);
}

#define LIMIT(function, expression)                                  \
    EXPORT nvmlReturn_t function(void *handle, unsigned *limit_mw)   \
    {                                                                \
        Call call;                                                   \
        NEED(limit_mw);                                              \
        TRY(enter(handle, G_LIMITS, &call));                         \
        *limit_mw = (expression);                                    \
        return SUCCESS;                                              \
    }

LIMIT(nvmlDeviceGetEnforcedPowerLimit, limit_mw_at(&call))
LIMIT(nvmlDeviceGetPowerManagementLimit, limit_mw_at(&call))
LIMIT(nvmlDeviceGetPowerManagementDefaultLimit, milliwatts(call.card->default_limit_w))

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned *min_mw,
                                                                 unsigned *max_mw)
{
    Call call;
    NEED(min_mw && max_mw);
    TRY(enter(handle, G_LIMITS, &call));
    *min_mw = milliwatts(call.card->min_limit_w);
    *max_mw = milliwatts(call.card->max_limit_w);
    return SUCCESS;
}

/* ---- field values */
enum {
    FIELD_POWER_POLICY = 74, FIELD_THERMAL_POLICY = 75, FIELD_ENERGY = 83,
    FIELD_POWER_AVERAGE = 185, FIELD_POWER_INSTANT = 186,
    FIELD_MIN_LIMIT = 187, FIELD_MAX_LIMIT = 188, FIELD_DEFAULT_LIMIT = 189, FIELD_CURRENT_LIMIT = 190, FIELD_SW_THERMAL = 269,
    FIELD_HW_THERMAL = 270, FIELD_HW_POWER_BRAKE = 271
};
enum { SCOPE_GPU = 0, SCOPE_MODULE = 1, SCOPE_MEMORY = 2 };

static Group field_group(uint32_t field_id)
{
    switch (field_id) {
    case FIELD_ENERGY: return G_COUNTER;
    case FIELD_POWER_AVERAGE: return G_AVERAGE;
    case FIELD_POWER_INSTANT: return G_INSTANT;
    default: return G_LIGHT;
    }
}

static nvmlReturn_t power_field(const Call *call, FieldValue *field)
{
    const Sensor *sensor = &call->card->sensor;
    bool instant = field->field_id == FIELD_POWER_INSTANT;
    double window_s = instant ? sensor->window_s : sensor->average_window_s;
    if (instant ? sensor->instant_field <= 0.0 : window_s < 0.0)
        return NOT_SUPPORTED;
    double power_w = sensor_power_w(call->card, field_group(field->field_id), call->t_ns, window_s);
    if (field->scope_id == SCOPE_MODULE && sensor->module_extra_w >= 0.0)
        power_w += sensor->module_extra_w;
    else if (field->scope_id == SCOPE_MEMORY && sensor->memory_share >= 0.0 && !instant)
        power_w *= sensor->memory_share;
    else if (field->scope_id != SCOPE_GPU)
        return NOT_SUPPORTED;
    field->value.ui = milliwatts(power_w);
    return SUCCESS;
}

static nvmlReturn_t energy_field(const Call *call, FieldValue *field)
{
    if (call->card->sensor.counter_period_s < 0.0 || field->scope_id != SCOPE_GPU)
        return NOT_SUPPORTED;
    field->value_type = VALUE_UNSIGNED_LONG_LONG;
    field->value.ull = sensor_counter_mj(call->card, call->t_ns);
    return SUCCESS;
}

static nvmlReturn_t throttled_field(const Call *call, FieldValue *field, Quantity which)
{
    const Signal *fraction = &call->card->signals[which];
    double t_s = (double)call->t_ns * 1e-9, throttled_s = signal_energy(fraction, 0.0, t_s);
    if (which == Q_POWER_THROTTLE)
        throttled_s += limited_s(call->card, t_s);
    field->value_type = VALUE_UNSIGNED_LONG_LONG;
    field->value.ull = (unsigned long long)llround(fmax(throttled_s, 0.0) * 1e9);
    return SUCCESS;
}

static nvmlReturn_t zero_field(FieldValue *field)
{
    field->value_type = VALUE_UNSIGNED_LONG_LONG;
    field->value.ull = 0;
    return SUCCESS;
}

static nvmlReturn_t limit_field(FieldValue *field, unsigned limit_mw)
{
    field->value.ui = limit_mw;
    return SUCCESS;
}

static nvmlReturn_t answer_field(const Call *call, FieldValue *field)
{
    switch (field->field_id) {
    case FIELD_ENERGY: return energy_field(call, field);
    case FIELD_POWER_AVERAGE:
    case FIELD_POWER_INSTANT: return power_field(call, field);
    case FIELD_POWER_POLICY: return throttled_field(call, field, Q_POWER_THROTTLE);
    case FIELD_THERMAL_POLICY:
    case FIELD_SW_THERMAL: return throttled_field(call, field, Q_THERMAL_THROTTLE);
    case FIELD_HW_THERMAL:
    case FIELD_HW_POWER_BRAKE: return zero_field(field);
    case FIELD_MIN_LIMIT: return limit_field(field, milliwatts(call->card->min_limit_w));
    case FIELD_MAX_LIMIT: return limit_field(field, milliwatts(call->card->max_limit_w));
    case FIELD_DEFAULT_LIMIT: return limit_field(field, milliwatts(call->card->default_limit_w));
    case FIELD_CURRENT_LIMIT: return limit_field(field, limit_mw_at(call));
    default: return NOT_SUPPORTED;
    }
}

static void read_field(Call *call, FieldValue *field)
{
    field->value_type = VALUE_UNSIGNED_INT;
    field->value.ull = 0;
    field->result = pay(call, field_group(field->field_id), false);
    if (field->result == SUCCESS)
        field->result = answer_field(call, field);
    field->timestamp_us = (call->t_ns + scenario->epoch_ns) / 1000;
    field->latency_us = (now_ns() - call->start_ns) / 1000;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(void *handle, int count, FieldValue *fields)
{
    Call call;
    NEED(fields && count > 0);
    TRY(enter(handle, G_FIELDS, &call));
    int64_t frozen_ns = call.frozen_ns;
    for (int i = 0; i < count; i++) {
        call.frozen_ns = frozen_ns; /* a frozen counter does not freeze the field after it */
        read_field(&call, &fields[i]);
    }
    return SUCCESS;
}

/* ---- the sample buffer */
EXPORT nvmlReturn_t nvmlDeviceGetSamples(void *handle, unsigned type,
                                         unsigned long long last_seen_us, unsigned *value_type,
                                         unsigned *count, Sample *samples)
{
    Call call;
    PowerSample found[MAX_SAMPLES];
    NEED(value_type && count);
    TRY(enter(handle, G_SAMPLES, &call));
    if (type != 0 || call.card->sensor.buffer_spacing_s <= 0.0)
        return NOT_SUPPORTED;
    size_t space = !samples || *count > MAX_SAMPLES ? MAX_SAMPLES : *count;
    size_t n = sensor_samples(call.card, call.t_ns, last_seen_us, found, space);
    if (n == 0)
        return NOT_FOUND;
    *value_type = VALUE_UNSIGNED_INT;
    *count = (unsigned)n;
    for (size_t i = 0; samples && i < n; i++) {
        samples[i].stamp_us = found[i].stamp_us;
        samples[i].value.ull = 0;
        samples[i].value.ui = milliwatts(found[i].power_w);
    }
    return SUCCESS;
}

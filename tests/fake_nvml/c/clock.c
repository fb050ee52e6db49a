/* Time: the real clock, or a virtual one that only moves when told to or when a call costs time. */
#include "fake.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static const int64_t REAL = INT64_MIN;
static const int64_t SECOND_NS = 1000000000;
static const int64_t SPIN_NS = 80000; /* a sleep overshoots by about 60 us */
static _Atomic int64_t virtual_ns = INT64_MIN;

static int64_t real_unix_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * SECOND_NS + now.tv_nsec;
}

static int64_t unix_ns(void)
{
    int64_t t_ns = virtual_ns;
    return t_ns == REAL ? real_unix_ns() : t_ns;
}

int64_t now_ns(void)
{
    Scenario *loaded = scenario;
    return unix_ns() - (loaded ? loaded->epoch_ns : 0);
}

/* A Unix time in a double has 240 ns of grain: whole microseconds make 1.3 s mean 1.3 s exactly. */
EXPORT void fakeNvmlSetTime(double unix_s)
{
    virtual_ns = unix_s < 0.0 ? REAL : (int64_t)llround(unix_s * 1e6) * 1000;
}

EXPORT double fakeNvmlNow(void)
{
    return (double)unix_ns() * 1e-9;
}

/* A child process that is to share its parent's virtual time finds it in FAKE_NVML_TIME. */
__attribute__((constructor)) static void start_at_time_of_environment(void)
{
    const char *unix_s = getenv("FAKE_NVML_TIME");
    if (unix_s)
        fakeNvmlSetTime(strtod(unix_s, NULL));
}

static void wait_until_unix_ns(int64_t deadline_ns)
{
    for (int64_t left_ns; (left_ns = deadline_ns - real_unix_ns()) > 0;) {
        if (left_ns <= SPIN_NS)
            continue;
        left_ns -= SPIN_NS;
        struct timespec pause = {.tv_sec = left_ns / SECOND_NS, .tv_nsec = left_ns % SECOND_NS};
        nanosleep(&pause, NULL);
    }
}

/* Lets a duration pass that begins now, which is stored in t_ns. */
void spend_until_ns(int64_t *t_ns, int64_t duration_ns)
{
    *t_ns = now_ns();
    if (duration_ns <= 0)
        return;
    if (virtual_ns == REAL)
        wait_until_unix_ns(real_unix_ns() + duration_ns);
    else
        atomic_fetch_add(&virtual_ns, duration_ns);
}

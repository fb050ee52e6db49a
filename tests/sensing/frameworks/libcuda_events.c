/* The part of the CUDA driver that cuda_events.py calls (cuda.h), on the host's clock.
 *
 * Asleep until cuInit. Work takes what fakeLaunch says; the stream 0x7 is the one that trains.
 * While fakeCapture is on, a query by a thread that is not in the relaxed mode spoils the capture,
 * as cuThreadExchangeStreamCaptureMode documents; here a new event does so, too.
 */
#include <stdlib.h>
#include <time.h>

typedef struct { double at_s; int is_recorded; } Event;
enum { NOT_INITIALIZED = 3, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_READY = 600,
       CAPTURE_UNSUPPORTED = 900, RELAXED = 2 };

static int awake, capturing, spoiled, alive, streams, recorded, idle_stream;
static double busy_until_s, recorded_s;
static int context;
static _Thread_local void *current;
static _Thread_local int depth, mode;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* for tests */
void fakeLaunch(double duration_s)
{
    double start_s = now_s() > busy_until_s ? now_s() : busy_until_s;
    busy_until_s = start_s + duration_s;
}
void fakeCapture(int on) { capturing = on; }
void fakeUseContext(void) { current = &context; }
double fakeEventAt(void) { return recorded_s; }
int fakeSpoiled(void) { return spoiled; }
int fakeAlive(void) { return alive + streams; }
int fakeRecorded(void) { return recorded; }
int fakeDepth(void) { return depth; }
int fakeMode(void) { return mode; }

int cuInit(unsigned flags) { (void)flags; awake = 1; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return awake ? 0 : NOT_INITIALIZED; }
int cuCtxGetDevice(int *device) { *device = 0; return depth ? 0 : INVALID_CONTEXT; }
int cuDeviceGetUuid_v2(char *uuid, int device)
{
    for (int place = 0; place < 16; place++)
        uuid[place] = (char)(0x10 + device);
    return 0;
}
int cuCtxGetCurrent(void **got) { *got = current; return awake ? 0 : NOT_INITIALIZED; }
int cuCtxPushCurrent_v2(void *pushed)
{
    if (pushed != &context)
        return INVALID_CONTEXT;
    depth++;
    return 0;
}
int cuCtxPopCurrent_v2(void **popped) { *popped = &context; depth--; return 0; }
int cuThreadExchangeStreamCaptureMode(int *exchanged)
{
    int before = mode;
    mode = *exchanged;
    *exchanged = before;
    return 0;
}
int cuStreamCreate(void **stream, unsigned flags)
{
    *stream = &idle_stream;
    streams++;
    return flags == 1 ? 0 : 1;
}
int cuStreamDestroy_v2(void *stream) { (void)stream; streams--; return 0; }
int cuStreamIsCapturing(void *stream, int *status)
{
    *status = capturing && stream == (void *)0x7;
    return 0;
}
static int look(void)
{
    if (!capturing || mode == RELAXED)
        return 0;
    spoiled = 1;
    return CAPTURE_UNSUPPORTED;
}
int cuEventCreate(Event **event, unsigned flags)
{
    if (look())
        return CAPTURE_UNSUPPORTED;
    *event = calloc(1, sizeof **event);
    alive++;
    return flags == 0 ? 0 : 1;
}
int cuEventDestroy_v2(Event *event) { free(event); alive--; return 0; }
int cuEventRecord(Event *event, void *stream)
{
    if (stream != &idle_stream && stream != (void *)0x7)
        return INVALID_HANDLE;
    if (capturing && stream != &idle_stream)
        spoiled = 1;
    recorded += stream != &idle_stream;
    event->is_recorded = 1;
    event->at_s = now_s();
    if (stream != &idle_stream && busy_until_s > event->at_s)
        event->at_s = busy_until_s;
    if (stream != &idle_stream)
        recorded_s = event->at_s;
    return 0;
}
int cuEventQuery(Event *event)
{
    int refused = look();
    return refused ? refused : event->at_s <= now_s() ? 0 : NOT_READY;
}
int cuEventElapsedTime(float *ms, Event *start, Event *end)
{
    double now = now_s();
    int refused = look();
    if (refused || !start->is_recorded || !end->is_recorded)
        return refused ? refused : INVALID_HANDLE;
    *ms = (float)((end->at_s - start->at_s) * 1e3);
    return start->at_s <= now && end->at_s <= now ? 0 : NOT_READY;
}

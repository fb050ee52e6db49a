/* MIG: a card and its instances, which have memory and processes but no power of their own. */
#include "api.h"

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    Call call;
    NEED(current && pending);
    TRY(enter(handle, G_IDENTITY, &call));
    if (call.card->mig_mode < 0)
        return NOT_SUPPORTED;
    *current = *pending = (unsigned)call.card->mig_mode;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count)
{
    Call call;
    NEED(count);
    TRY(enter(handle, G_IDENTITY, &call));
    *count = call.card->mig_mode < 0 ? 0 : MAX_MIGS; /* 7 on A100 to B200 */
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **mig)
{
    Call call;
    NEED(mig);
    TRY(enter(handle, G_IDENTITY, &call));
    if (call.card->mig_mode < 0)
        return NOT_SUPPORTED;
    if (index >= call.card->n_migs)
        return NOT_FOUND;
    *mig = &call.card->migs[index];
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **parent)
{
    Call call;
    NEED(parent);
    TRY(enter_any(handle, G_IDENTITY, &call));
    if (!call.mig)
        return INVALID_ARGUMENT;
    *parent = call.card;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is_mig)
{
    Call call;
    NEED(is_mig);
    TRY(enter_any(handle, G_IDENTITY, &call));
    *is_mig = call.mig != NULL;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id)
{
    Call call;
    NEED(id);
    TRY(enter_any(handle, G_IDENTITY, &call));
    if (!call.mig)
        return NOT_SUPPORTED;
    *id = (unsigned)call.mig->gpu_instance;
    return SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id)
{
    Call call;
    NEED(id);
    TRY(enter_any(handle, G_IDENTITY, &call));
    if (!call.mig)
        return NOT_SUPPORTED;
    *id = (unsigned)call.mig->compute_instance;
    return SUCCESS;
}

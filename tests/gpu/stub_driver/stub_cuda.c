/* A stand-in for NVIDIA's libcuda.so.1, for tests that say so. There is no GPU behind it, and no kernel is ever run.
 *
 * Device memory is host memory. A module is read as far as names and parameters of its kernels go. A
 * launch is checked against them and written to the file $STUB_CUDA_LOG, with the bytes of every parameter.
 *
 * $STUB_CUDA_ARCH (90), _DRIVER (13000), _FREE (bytes): what the device and the driver are.
 * $STUB_CUDA_FAULT=SYMBOL:NUMBER: launches of kernels whose names begin so fail with this error from then on.
 * $STUB_CUDA_STRAY=SYMBOL:PARAMETER:OFFSET: they write one byte so far from what a pointer points to.
 * $STUB_CUDA_HANG=SYMBOL: whoever waits for them waits for ever. $STUB_CUDA_QUIET: nothing is written. */
#define _GNU_SOURCE
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int Result;
typedef uint64_t Address;
enum {
    OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, BAD_IMAGE = 200,
    NO_CONTEXT = 201, NO_BINARY = 209, NOT_FOUND = 500
};
enum { MOST_KERNELS = 16, MOST_PARAMETERS = 64, DYNAMIC_SHARED = 8, CLUSTER_SIZE = 4 };
enum { LARGEST_SHARED = 232448, PLAIN_SHARED = 49152 };
#define CONTEXT ((void *)0x1000)

typedef struct { int offset, size; } Parameter;
typedef struct { char name[256]; int parameters, shared; Parameter parameter[MOST_PARAMETERS]; } Kernel;
typedef struct { int kernels; Kernel kernel[MOST_KERNELS]; } Module;
typedef struct { Kernel *kernel; unsigned grid[3], block[3], shared, cluster[3]; void **given; } Launch;
typedef struct { unsigned launches; } Graph;

static int is_initialized, is_hanging;
static size_t taken;
static Result sticky;
static unsigned *capturing;
static __thread void *current;
static FILE *out;

static long number(const char *name, long otherwise)
{
    const char *value = getenv(name);
    return value ? strtol(value, 0, 0) : otherwise;
}

static FILE *record(void)
{
    if (!out) {
        const char *path = getenv("STUB_CUDA_LOG");
        out = path ? fopen(path, "a") : fopen("/dev/null", "a");
        setvbuf(out, 0, _IOLBF, 0);
    }
    return out;
}

static size_t free_bytes(void)
{
    size_t all = number("STUB_CUDA_FREE", 1l << 30);
    return all > taken ? all - taken : 0;
}

#define NEED_CONTEXT \
    if (!is_initialized) return NOT_INITIALIZED; \
    if (!current) return NO_CONTEXT; \
    if (sticky) return sticky

static Result wait_for_work(void)
{
    while (is_hanging) pause();
    return sticky;
}

/* ---- devices and contexts ---- */

/* The real one, too, takes far more addresses than it takes memory: one for each byte of host and device. */
Result cuInit(unsigned flags)
{
    static void *addresses;
    if (!addresses) addresses = mmap(0, 1ul << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) {
        addresses = 0;
        return NO_MEMORY;
    }
    is_initialized = 1;
    return flags ? INVALID : OK;
}
Result cuDriverGetVersion(int *version) { *version = number("STUB_CUDA_DRIVER", 13000); return OK; }
Result cuDeviceGetCount(int *count) { *count = 1; return OK; }
Result cuDeviceGet(int *device, int ordinal)
{
    if (!is_initialized) return NOT_INITIALIZED;
    if (ordinal) return INVALID_DEVICE;
    *device = 0;
    return OK;
}
Result cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, size, "stub device, runs nothing");
    return OK;
}
Result cuDeviceGetUuid(char *uuid, int device) { memcpy(uuid, "stub-of-no-gpu!!", 16); return OK; }
Result cuDeviceTotalMem(size_t *bytes, int device) { *bytes = 1ul << 30; return OK; }
Result cuDeviceGetAttribute(int *value, int attribute, int device)
{
    long arch = number("STUB_CUDA_ARCH", 90);
    switch (attribute) {
    case 8: *value = PLAIN_SHARED; break;
    case 16: *value = 132; break;
    case 38: *value = 1 << 20; break; /* L2 */
    case 75: *value = arch / 10; break;
    case 76: *value = arch % 10; break;
    case 97: *value = LARGEST_SHARED; break;
    default: *value = 0;
    }
    return OK;
}
Result cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (!is_initialized) return NOT_INITIALIZED;
    *context = CONTEXT;
    return OK;
}
Result cuDevicePrimaryCtxRelease(int device) { return OK; }
Result cuCtxSetCurrent(void *context) { current = context; return OK; }
Result cuCtxGetCurrent(void **context) { *context = current; return OK; }
Result cuCtxSynchronize(void) { NEED_CONTEXT; return wait_for_work(); }

/* ---- memory ---- */

Result cuMemGetInfo(size_t *left, size_t *total)
{
    NEED_CONTEXT;
    *left = free_bytes();
    *total = 1ul << 30;
    return OK;
}
Result cuMemAlloc(Address *address, size_t bytes)
{
    NEED_CONTEXT;
    if (!bytes) return INVALID;
    if (bytes > free_bytes()) return NO_MEMORY;
    char *raw;
    if (posix_memalign((void **)&raw, 512, bytes + 512)) return NO_MEMORY;
    memcpy(raw, &bytes, sizeof bytes);
    taken += bytes;
    *address = (Address)(raw + 512);
    fprintf(record(), "alloc %zu\n", bytes);
    return OK;
}
Result cuMemFree(Address address)
{
    NEED_CONTEXT;
    size_t bytes;
    memcpy(&bytes, (char *)address - 512, sizeof bytes);
    taken -= bytes;
    free((char *)address - 512);
    fprintf(record(), "free %zu\n", bytes);
    return OK;
}
Result cuMemcpyHtoD(Address to, const void *from, size_t bytes)
{
    NEED_CONTEXT;
    memcpy((void *)to, from, bytes);
    fprintf(record(), "upload %zu\n", bytes);
    return OK;
}
Result cuMemcpyDtoH(void *to, Address from, size_t bytes)
{
    NEED_CONTEXT;
    Result result = wait_for_work();
    if (!result) memcpy(to, (void *)from, bytes);
    return result;
}
Result cuMemcpyDtoDAsync(Address to, Address from, size_t bytes, void *stream)
{
    NEED_CONTEXT;
    memmove((void *)to, (void *)from, bytes);
    return OK;
}
Result cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void *stream)
{
    NEED_CONTEXT;
    memset((void *)to, value, bytes);
    fprintf(record(), "fill %zu\n", bytes);
    return OK;
}

/* ---- streams, events, graphs ---- */

Result cuStreamCreate(void **stream, unsigned flags) { NEED_CONTEXT; *stream = malloc(1); return OK; }
Result cuStreamSynchronize(void *stream) { NEED_CONTEXT; return wait_for_work(); }
Result cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    NEED_CONTEXT;
    fprintf(record(), "wait\n");
    return OK;
}
Result cuEventCreate(void **event, unsigned flags)
{
    NEED_CONTEXT;
    *event = calloc(1, sizeof(struct timespec));
    return OK;
}
Result cuEventRecord(void *event, void *stream)
{
    NEED_CONTEXT;
    clock_gettime(CLOCK_MONOTONIC, event);
    return OK;
}
Result cuEventSynchronize(void *event) { NEED_CONTEXT; return wait_for_work(); }
Result cuEventElapsedTime(float *ms, void *from, void *to)
{
    NEED_CONTEXT;
    struct timespec *a = from, *b = to;
    *ms = (b->tv_sec - a->tv_sec) * 1e3f + (b->tv_nsec - a->tv_nsec) * 1e-6f;
    return OK;
}
Result cuEventDestroy(void *event) { free(event); return OK; }
Result cuStreamBeginCapture(void *stream, int mode)
{
    NEED_CONTEXT;
    if (!stream || capturing) return INVALID;
    capturing = calloc(1, sizeof *capturing);
    return OK;
}
Result cuStreamEndCapture(void *stream, void **graph)
{
    NEED_CONTEXT;
    if (!capturing) return INVALID;
    fprintf(record(), "captured %u\n", *capturing);
    *graph = capturing;
    capturing = 0;
    return OK;
}
Result cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags)
{
    NEED_CONTEXT;
    *made = memcpy(malloc(sizeof(Graph)), graph, sizeof(Graph));
    return OK;
}
Result cuGraphLaunch(void *made, void *stream)
{
    NEED_CONTEXT;
    fprintf(record(), "replay %u\n", ((Graph *)made)->launches);
    return OK;
}
Result cuGraphDestroy(void *graph) { free(graph); return OK; }
Result cuGraphExecDestroy(void *made) { free(made); return OK; }

/* ---- modules ---- */

static void read_parameters(Kernel *kernel, const uint8_t *at, const uint8_t *end)
{
    while (at + 4 <= end) {
        uint16_t size;
        memcpy(&size, at + 2, 2);
        if (at[0] == 4 && at[1] == 0x17 && size >= 12) {
            uint16_t index, offset;
            uint32_t packed;
            memcpy(&index, at + 8, 2);
            memcpy(&offset, at + 10, 2);
            memcpy(&packed, at + 12, 4);
            if (index < MOST_PARAMETERS) {
                kernel->parameter[index] = (Parameter){offset, packed >> 18};
                if (index + 1 > kernel->parameters) kernel->parameters = index + 1;
            }
        }
        at += at[0] == 4 ? 4 + size : 4;
    }
}

static int arch_of(const Elf64_Ehdr *elf)
{
    int low = elf->e_flags & 0xff, high = elf->e_flags >> 8 & 0xff;
    return elf->e_ident[EI_ABIVERSION] >= 8 || low < 50 ? high : low;
}

Result cuModuleLoadDataEx(void **made, const void *image, unsigned count, int *options, void **values)
{
    NEED_CONTEXT;
    const Elf64_Ehdr *elf = image;
    if (memcmp(elf->e_ident, ELFMAG, 4) || elf->e_machine != 190) return BAD_IMAGE;
    long arch = arch_of(elf), device = number("STUB_CUDA_ARCH", 90);
    if (arch / 10 != device / 10 || arch > device) return NO_BINARY;
    const char *bytes = image;
    const Elf64_Shdr *section = (const void *)(bytes + elf->e_shoff);
    const char *names = bytes + section[elf->e_shstrndx].sh_offset;
    Module *module = calloc(1, sizeof *module);
    for (int i = 0; i < elf->e_shnum; i++) {
        const char *name = names + section[i].sh_name;
        if (strncmp(name, ".nv.info.", 9) || module->kernels == MOST_KERNELS) continue;
        Kernel *kernel = &module->kernel[module->kernels++];
        snprintf(kernel->name, sizeof kernel->name, "%s", name + 9);
        const uint8_t *at = (const void *)(bytes + section[i].sh_offset);
        read_parameters(kernel, at, at + section[i].sh_size);
    }
    fprintf(record(), "module %d\n", module->kernels);
    *made = module;
    return OK;
}
Result cuModuleLoadData(void **made, const void *image) { return cuModuleLoadDataEx(made, image, 0, 0, 0); }
Result cuModuleUnload(void *module) { NEED_CONTEXT; return OK; }
Result cuModuleGetFunction(void **found, Module *module, const char *name)
{
    NEED_CONTEXT;
    for (int i = 0; i < module->kernels; i++)
        if (!strcmp(module->kernel[i].name, name)) {
            *found = &module->kernel[i];
            return OK;
        }
    return NOT_FOUND;
}
Result cuFuncSetAttribute(Kernel *kernel, int attribute, int value)
{
    NEED_CONTEXT;
    if (attribute != DYNAMIC_SHARED) return OK;
    if (value > LARGEST_SHARED) return INVALID;
    kernel->shared = value;
    return OK;
}
Result cuFuncGetParamInfo(Kernel *kernel, size_t index, size_t *offset, size_t *size)
{
    if (index >= (size_t)kernel->parameters) return INVALID;
    *offset = kernel->parameter[index].offset;
    if (size) *size = kernel->parameter[index].size;
    return OK;
}

/* ---- launches ---- */

/* What stands after "SYMBOL:" in a variable, where the kernel's name begins with SYMBOL. */
static const char *meant(const char *variable, const Kernel *kernel)
{
    const char *value = getenv(variable);
    if (!value) return 0;
    size_t length = strcspn(value, ":");
    if (strncmp(value, kernel->name, length)) return 0;
    return value[length] ? value + length + 1 : "";
}

static void write_launch(const Launch *one)
{
    FILE *file = record();
    const unsigned *g = one->grid, *b = one->block, *c = one->cluster;
    fprintf(file, "launch %s grid=%u,%u,%u block=%u,%u,%u shared=%u cluster=%u,%u,%u params", one->kernel->name,
            g[0], g[1], g[2], b[0], b[1], b[2], one->shared, c[0], c[1], c[2]);
    for (int i = 0; i < one->kernel->parameters; i++) {
        fputc(i ? ',' : '=', file);
        for (int j = 0; j < one->kernel->parameter[i].size; j++)
            fprintf(file, "%02x", ((uint8_t *)one->given[i])[j]);
    }
    fputc('\n', file);
}

static Result launch(const Launch *one)
{
    NEED_CONTEXT;
    const unsigned *g = one->grid, *b = one->block;
    if (one->shared > PLAIN_SHARED && (int)one->shared > one->kernel->shared) return INVALID;
    if (one->kernel->parameters && !one->given) return INVALID;
    if (!g[0] || !g[1] || !g[2] || !b[0] || !b[1] || !b[2] || b[0] * b[1] * b[2] > 1024) return INVALID;
    if (capturing) ++*capturing;
    if (getenv("STUB_CUDA_QUIET")) return OK;
    write_launch(one);
    const char *how = meant("STUB_CUDA_FAULT", one->kernel);
    if (how) sticky = strtol(how, 0, 0);
    if ((how = meant("STUB_CUDA_STRAY", one->kernel))) {
        char *rest;
        long parameter = strtol(how, &rest, 0), offset = strtol(rest + 1, 0, 0);
        char *target;
        memcpy(&target, one->given[parameter], sizeof target);
        target[offset] ^= 0x55;
    }
    if (meant("STUB_CUDA_HANG", one->kernel)) is_hanging = 1;
    return OK;
}

typedef struct { unsigned id, pad; union { char bytes[64]; unsigned size[3]; int flag; } value; } Attribute;
typedef struct { unsigned grid[3], block[3], shared; void *stream; Attribute *attributes; unsigned count; } Config;

Result cuLaunchKernelEx(const Config *config, Kernel *kernel, void **given, void **extra)
{
    Launch one = {.kernel = kernel, .shared = config->shared, .cluster = {1, 1, 1}, .given = given};
    memcpy(one.grid, config->grid, sizeof one.grid);
    memcpy(one.block, config->block, sizeof one.block);
    for (unsigned i = 0; i < config->count; i++) {
        const Attribute *attribute = &config->attributes[i];
        if (attribute->id == CLUSTER_SIZE)
            memcpy(one.cluster, attribute->value.size, sizeof one.cluster);
        else if (!getenv("STUB_CUDA_QUIET"))
            fprintf(record(), "attribute %u=%d\n", attribute->id, attribute->value.flag);
    }
    return launch(&one);
}

static int is_refused(const void *map, const void *address, unsigned rank, const uint64_t *dims, const uint64_t *strides,
                      const uint32_t *steps)
{
    if ((uintptr_t)map % 64 || rank < 1 || rank > 5 || (uintptr_t)address % 16) return 1;
    for (unsigned i = 0; i < rank; i++)
        if (!dims[i] || dims[i] > 1ul << 32 || !steps[i] || steps[i] > 8) return 1;
    for (unsigned i = 0; i + 1 < rank; i++)
        if (strides[i] % 16 || strides[i] >= 1ul << 40) return 1;
    return 0;
}

static void fill_map(void *map, int dtype, unsigned rank, const void *address, const uint64_t *dims)
{
    memset(map, 0, 128);
    memcpy(map, &address, 8);
    memcpy((char *)map + 8, &dtype, 4);
    memcpy((char *)map + 12, &rank, 4);
    memcpy((char *)map + 16, dims, 8 * rank);
}

Result cuTensorMapEncodeIm2col(void *map, int dtype, unsigned rank, void *address, const uint64_t *dims,
                               const uint64_t *strides, const int *lower, const int *upper, unsigned channels,
                               unsigned pixels, const uint32_t *steps, int interleave, int swizzle, int promotion,
                               int oob)
{
    if (rank < 3 || !channels || channels > 256 || !pixels || pixels > 1024) return INVALID;
    if (is_refused(map, address, rank, dims, strides, steps)) return INVALID;
    fill_map(map, dtype, rank, address, dims);
    fprintf(record(), "im2col rank=%u lower=%d upper=%d channels=%u pixels=%u swizzle=%d\n", rank, lower[0], upper[0],
            channels, pixels, swizzle);
    return OK;
}

Result cuTensorMapEncodeTiled(void *map, int dtype, unsigned rank, void *address, const uint64_t *dims,
                              const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                              int swizzle, int promotion, int fill)
{
    if (is_refused(map, address, rank, dims, strides, steps)) return INVALID;
    for (unsigned i = 0; i < rank; i++)
        if (!box[i] || box[i] > 256) return INVALID;
    fill_map(map, dtype, rank, address, dims);
    fprintf(record(), "map dtype=%d rank=%u dim0=%lu box0=%u swizzle=%d\n", dtype, rank, (unsigned long)dims[0],
            box[0], swizzle);
    return OK;
}

Result cuTensorMapReplaceAddress(void *map, void *address)
{
    if ((uintptr_t)map % 64 || (uintptr_t)address % 16) return INVALID;
    memcpy(map, &address, 8);
    fprintf(record(), "aimed elsewhere\n");
    return OK;
}

/* ---- how a program finds all this ---- */

#define ENTRY(name) {#name, (void *)name}
static const struct { const char *name; void *function; } entries[] = {
    ENTRY(cuInit), ENTRY(cuDriverGetVersion), ENTRY(cuDeviceGetCount), ENTRY(cuDeviceGet), ENTRY(cuDeviceGetName),
    ENTRY(cuDeviceGetUuid), ENTRY(cuDeviceTotalMem), ENTRY(cuDeviceGetAttribute), ENTRY(cuDevicePrimaryCtxRetain),
    ENTRY(cuDevicePrimaryCtxRelease), ENTRY(cuCtxSetCurrent), ENTRY(cuCtxGetCurrent), ENTRY(cuCtxSynchronize),
    ENTRY(cuMemGetInfo), ENTRY(cuMemAlloc), ENTRY(cuMemFree), ENTRY(cuMemcpyHtoD), ENTRY(cuMemcpyDtoH),
    ENTRY(cuMemcpyDtoDAsync), ENTRY(cuMemsetD8Async), ENTRY(cuStreamCreate), ENTRY(cuStreamSynchronize),
    ENTRY(cuStreamWaitEvent), ENTRY(cuEventCreate), ENTRY(cuEventRecord), ENTRY(cuEventSynchronize),
    ENTRY(cuEventElapsedTime), ENTRY(cuEventDestroy), ENTRY(cuStreamBeginCapture), ENTRY(cuStreamEndCapture),
    ENTRY(cuGraphInstantiateWithFlags), ENTRY(cuGraphLaunch), ENTRY(cuGraphDestroy), ENTRY(cuGraphExecDestroy),
    ENTRY(cuModuleLoadDataEx), ENTRY(cuModuleLoadData), ENTRY(cuModuleUnload), ENTRY(cuModuleGetFunction),
    ENTRY(cuFuncSetAttribute), ENTRY(cuFuncGetParamInfo), ENTRY(cuLaunchKernelEx), ENTRY(cuTensorMapEncodeTiled),
    ENTRY(cuTensorMapEncodeIm2col), ENTRY(cuTensorMapReplaceAddress),
};

Result cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status)
{
    if (status) *status = 0;
    if (!strcmp(name, "cuGetProcAddress")) {
        *found = (void *)cuGetProcAddress_v2;
        return OK;
    }
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        size_t length = strlen(entries[i].name), whole = strlen(name);
        int is_it = !strncmp(name, entries[i].name, length);
        if (is_it && (whole == length || (name[length] == '_' && name[length + 1] == 'v'))) {
            *found = entries[i].function;
            return OK;
        }
    }
    *found = 0;
    if (status) *status = 1;
    return NOT_FOUND;
}

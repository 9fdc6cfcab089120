/* kronsparse for C, and for everything that can call C.
 *
 * Every function that can fail returns a status: KRONSPARSE_OK or one of the
 * codes below. After a failure, kronsparse_last_error() gives the message of
 * the last failed call on this thread. On failure nothing is written through
 * the output pointers. See the C++ headers for what each operation computes. */
#ifndef KRONSPARSE_H
#define KRONSPARSE_H

#include <stddef.h>
#include <stdint.h>

#include "kronsparse/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kronsparse_status {
  KRONSPARSE_OK = 0,
  KRONSPARSE_INVALID_ARGUMENT = 1,
  KRONSPARSE_PARSE = 2,
  KRONSPARSE_SIZE_MISMATCH = 3,
  KRONSPARSE_BAD_POINTER = 4,
  KRONSPARSE_OVERLAP = 5,
  KRONSPARSE_OVERFLOW = 6,
  KRONSPARSE_UNSUPPORTED = 7,
  KRONSPARSE_IO = 8,
  KRONSPARSE_OUT_OF_MEMORY = 9,
  KRONSPARSE_DEVICE = 10,
  KRONSPARSE_INTERNAL = 11
} kronsparse_status;

typedef enum kronsparse_dtype {
  KRONSPARSE_F32,
  KRONSPARSE_F64,
  KRONSPARSE_F16,
  KRONSPARSE_BF16,
  KRONSPARSE_COMPLEX64,
  KRONSPARSE_COMPLEX128
} kronsparse_dtype;

typedef enum kronsparse_layout { KRONSPARSE_BATCH_FIRST, KRONSPARSE_BATCH_LAST } kronsparse_layout;

typedef enum kronsparse_operation {
  KRONSPARSE_MULTIPLY,
  KRONSPARSE_TRANSPOSED,
  KRONSPARSE_ADJOINT,
  KRONSPARSE_GRADIENT
} kronsparse_operation;

typedef enum kronsparse_activation {
  KRONSPARSE_NONE,
  KRONSPARSE_RELU,
  KRONSPARSE_GELU,
  KRONSPARSE_GELU_TANH,
  KRONSPARSE_SILU
} kronsparse_activation;

typedef enum kronsparse_mode {
  KRONSPARSE_MODE_FP32,
  KRONSPARSE_MODE_IEEE,
  KRONSPARSE_MODE_TF32
} kronsparse_mode;

/* The support I_a (x) 1_{b x c} (x) I_d of one factor. */
typedef struct kronsparse_pattern {
  int64_t a, b, c, d;
} kronsparse_pattern;

#define KRONSPARSE_MAX_FACTORS 32

/* A problem; the fields of kronsparse::Problem. Start from
 * kronsparse_problem_parse or from a zeroed struct with factor_count, as many
 * factors (left factor first) and batch set (zero is every other field's default). */
typedef struct kronsparse_problem {
  int factor_count; /* 1 to KRONSPARSE_MAX_FACTORS */
  kronsparse_pattern factors[KRONSPARSE_MAX_FACTORS];
  int64_t batch;
  kronsparse_dtype dtype;
  kronsparse_layout layout;
  kronsparse_operation operation;
  kronsparse_mode mode;
  int bias; /* 0 or 1 */
  kronsparse_activation activation;
  int64_t cols_stride; /* 0: dense */
  int64_t rows_stride;
} kronsparse_problem;

/* How many samples a run has, and how they lie; strides of 0 are dense. */
typedef struct kronsparse_batch {
  int64_t size;
  int64_t cols_stride;
  int64_t rows_stride;
} kronsparse_batch;

typedef struct kronsparse_plan kronsparse_plan;
typedef struct kronsparse_packed kronsparse_packed;

/* Pointers of one run; unused ones are NULL. kronsparse::Operands explains each. */
typedef struct kronsparse_operands {
  const void* x;
  void* y;
  const void* bias;
  const void* g;
  void* stream;
  const void* const* values; /* an address for each factor: a plan without values */
  const kronsparse_packed* packed;
  void* const* gradients; /* an address for each factor: the gradient of a chain */
  void* grad_x;
  void* workspace;
  size_t workspace_bytes;
  void* intermediates;
} kronsparse_operands;

/* "0.1.0" */
KRONSPARSE_API const char* kronsparse_version(void);
/* Message of the last failure on this thread; "" if there was none. Valid
 * until the next call on this thread. */
KRONSPARSE_API const char* kronsparse_last_error(void);
/* "ok", "invalid_argument", ...; "unknown" for a number that is no status. */
KRONSPARSE_API const char* kronsparse_status_name(kronsparse_status status);

/* Reads the text form, e.g. "f32 batch_first B=64 4x64x64x16 +bias" or
 * "f16 batch_first B=1024 1x64x64x64*64x64x64x1"; overflow for more than
 * KRONSPARSE_MAX_FACTORS factors. */
KRONSPARSE_API kronsparse_status kronsparse_problem_parse(const char* text, kronsparse_problem* problem);
/* Writes the text form and its terminating zero, if `size` bytes hold it
 * (otherwise size_mismatch; 256 bytes always do for one factor, 4096 for all). */
KRONSPARSE_API kronsparse_status kronsparse_problem_print(const kronsparse_problem* problem, char* text,
                                                          size_t size);

/* Devices that can be used now, the CPU first, best last. */
typedef struct kronsparse_device {
  char name[32];         /* "cpu", "cuda:0": what `device` arguments take */
  char description[160]; /* a line for people */
  size_t cache_bytes;    /* of its largest cache */
} kronsparse_device;
/* Writes at most `capacity` of them, and how many there are to `count`. devices may be NULL when capacity is
 * 0. */
KRONSPARSE_API kronsparse_status kronsparse_devices(kronsparse_device* devices, size_t capacity,
                                                    size_t* count);

/* Why a device cannot be used, as text of at most `size` bytes with its terminating zero; "" when it can. A
 * longer one is cut. */
KRONSPARSE_API kronsparse_status kronsparse_why_unusable(const char* device, char* text, size_t size);

/* One of the implementations of this build, whatever devices there are. */
typedef struct kronsparse_implementation {
  char name[32];     /* what `implementation` arguments take */
  char backend[16];  /* "cpu", "cuda" */
  char summary[160]; /* a line for people */
} kronsparse_implementation;
/* Writes all of them, with capacity and count as in kronsparse_devices. */
KRONSPARSE_API kronsparse_status kronsparse_implementations(kronsparse_implementation* implementations,
                                                            size_t capacity, size_t* count);

/* Writes the products with one factor that a run of a chain consists of, in their order, with capacity and
 * count as in kronsparse_devices. */
KRONSPARSE_API kronsparse_status kronsparse_steps(const kronsparse_problem* problem,
                                                  kronsparse_problem* steps, size_t capacity, size_t* count);

/* One implementation's answer to a problem: with one factor, or with a chain in one pass. */
typedef struct kronsparse_candidate {
  char implementation[32];
  char refusal[256];        /* why it does not accept the problem; "" when it does */
  double predicted_seconds; /* meaningful when it accepts */
  int is_measured;          /* 1 where kronsparse_tune measured these seconds */
} kronsparse_candidate;
/* Writes every implementation of the device, those that accept first, cheapest first, with capacity and count
 * as in kronsparse_devices. */
KRONSPARSE_API kronsparse_status kronsparse_candidates(const kronsparse_problem* problem, const char* device,
                                                       kronsparse_candidate* candidates, size_t capacity,
                                                       size_t* count);

/* Measures the implementations that accept the problem on the device, and remembers who was fastest: plans
 * take that one from now on, in this process and in others of this user; kronsparse_candidates shows the
 * times. most: how many, those predicted to be fastest; 0 for all. The environment variable KRONSPARSE_TUNE
 * does the same for every new problem. The C++ header tune.hpp says more. */
KRONSPARSE_API kronsparse_status kronsparse_tune(const kronsparse_problem* problem, const char* device,
                                                 int most);

/* The cost model's time for the implementations that a plan with values on this device
 * would take, in seconds per run, without packing; kronsparse_plan_predict has both. Nothing is allocated or
 * measured. device and implementation as for kronsparse_plan_create. */
KRONSPARSE_API kronsparse_status kronsparse_predict(const kronsparse_problem* problem, const char* device,
                                                    const char* implementation, double* seconds);

/* Makes a plan. device: "cpu", "cuda:0", ...; NULL is the CPU. implementation:
 * a name to force one, or NULL. values: an address for each factor, left factor first, packed now; NULL for a
 * plan that keeps none: its runs are given values, but for the gradient of one factor. */
KRONSPARSE_API kronsparse_status kronsparse_plan_create(const kronsparse_problem* problem,
                                                        const void* const* values, const char* device,
                                                        const char* implementation, kronsparse_plan** plan);
/* Packs new values, and waits for that; not while runs are in flight. */
KRONSPARSE_API kronsparse_status kronsparse_plan_set_values(kronsparse_plan* plan, const void* const* values);
/* The same in the order of a stream, without waiting. */
KRONSPARSE_API kronsparse_status kronsparse_plan_set_values_on(kronsparse_plan* plan,
                                                               const void* const* values, void* stream);
/* Packs values as this batch wants them, beside those that are there; not while runs are in flight. */
KRONSPARSE_API kronsparse_status kronsparse_plan_prepare(kronsparse_plan* plan, const kronsparse_batch* batch,
                                                         const void* const* values);
/* batch: NULL for the problem's own. */
KRONSPARSE_API kronsparse_status kronsparse_plan_run(const kronsparse_plan* plan,
                                                     const kronsparse_batch* batch,
                                                     const kronsparse_operands* operands);
/* Bytes of workspace that such a run needs. It matters only which of the operands are NULL. */
KRONSPARSE_API kronsparse_status kronsparse_plan_workspace(const kronsparse_plan* plan,
                                                           const kronsparse_batch* batch,
                                                           const kronsparse_operands* operands,
                                                           size_t* bytes);
/* Bytes of the results that factors hand on to each other, for kronsparse_operands.intermediates. */
KRONSPARSE_API kronsparse_status kronsparse_plan_intermediates(const kronsparse_plan* plan,
                                                               const kronsparse_batch* batch, size_t* bytes);
/* The cost model's time for a run of such a batch, and for the packing that comes before it where the
 * plan keeps no values. */
KRONSPARSE_API kronsparse_status kronsparse_plan_predict(const kronsparse_plan* plan,
                                                         const kronsparse_batch* batch, double* seconds,
                                                         double* packing_seconds);
/* The problem that the plan was made for, and the name of its device. */
KRONSPARSE_API kronsparse_status kronsparse_plan_problem(const kronsparse_plan* plan,
                                                         kronsparse_problem* problem);
KRONSPARSE_API kronsparse_status kronsparse_plan_device(const kronsparse_plan* plan, char* text, size_t size);
/* The names of the implementations that run a batch, joined by " + ", as text of `size` bytes; size_mismatch
 * where they do not fit. */
KRONSPARSE_API kronsparse_status kronsparse_plan_choice(const kronsparse_plan* plan,
                                                        const kronsparse_batch* batch, char* text,
                                                        size_t size);
/* The same for the problem's own batch; lives as long as the plan. NULL for a null plan. */
KRONSPARSE_API const char* kronsparse_plan_implementation(const kronsparse_plan* plan);
/* Bytes of packed values that the plan keeps; 0 for a null plan. */
KRONSPARSE_API size_t kronsparse_plan_packed_bytes(const kronsparse_plan* plan);
/* NULL is allowed. */
KRONSPARSE_API void kronsparse_plan_destroy(kronsparse_plan* plan);

/* Packed values apart from any plan, for all batches, streams and threads: kronsparse::PackedValues. */
KRONSPARSE_API kronsparse_status kronsparse_packed_create(const kronsparse_plan* plan,
                                                          kronsparse_packed** packed);
/* Memory from the caller: allocate returns bytes > 0 of the plan's device, at a multiple of 256, or NULL when
 * there are none; release takes them back. Both get `context`. */
typedef void* (*kronsparse_allocate_function)(void* context, size_t bytes);
typedef void (*kronsparse_release_function)(void* context, void* data);
KRONSPARSE_API kronsparse_status kronsparse_packed_create_with(const kronsparse_plan* plan,
                                                               kronsparse_allocate_function allocate,
                                                               kronsparse_release_function release,
                                                               void* context, kronsparse_packed** packed);
/* Sets is_ready to 1 where a run of the batch finds all it needs, else to 0. */
KRONSPARSE_API kronsparse_status kronsparse_packed_is_ready(const kronsparse_packed* packed,
                                                            const kronsparse_plan* plan,
                                                            const kronsparse_batch* batch, int* is_ready);
/* Packs what the batch lacks, on the stream, and waits for it. Sets has_room, which may be NULL, to 0 where
 * there was no room for it: such a run needs values. Else sets it to 1. */
KRONSPARSE_API kronsparse_status kronsparse_packed_prepare(kronsparse_packed* packed,
                                                           const kronsparse_plan* plan,
                                                           const kronsparse_batch* batch,
                                                           const void* const* values, void* stream,
                                                           int* has_room);
/* 0 for NULL. */
KRONSPARSE_API size_t kronsparse_packed_bytes(const kronsparse_packed* packed);
/* NULL is allowed. */
KRONSPARSE_API void kronsparse_packed_destroy(kronsparse_packed* packed);

/* Memory of a device, aligned to 256 bytes; host memory on the CPU. */
KRONSPARSE_API kronsparse_status kronsparse_allocate(const char* device, size_t bytes, void** data);
/* NULL is allowed. */
KRONSPARSE_API kronsparse_status kronsparse_free(const char* device, void* data);
KRONSPARSE_API kronsparse_status kronsparse_copy_from_host(const char* device, void* to, const void* from,
                                                           size_t bytes, void* stream);
KRONSPARSE_API kronsparse_status kronsparse_copy_to_host(const char* device, void* to, const void* from,
                                                         size_t bytes, void* stream);
/* Within the device, and zeros; a GPU does both in the stream's order. */
KRONSPARSE_API kronsparse_status kronsparse_copy(const char* device, void* to, const void* from, size_t bytes,
                                                 void* stream);
KRONSPARSE_API kronsparse_status kronsparse_clear(const char* device, void* data, size_t bytes, void* stream);
/* Waits for the stream's work. */
KRONSPARSE_API kronsparse_status kronsparse_synchronise(const char* device, void* stream);
/* Sets is_capturing to 1 where the stream's work is being recorded (into a CUDA graph, say), else to 0. */
KRONSPARSE_API kronsparse_status kronsparse_is_capturing(const char* device, void* stream, int* is_capturing);

/* Measures work in a stream's own time: marks are enqueued between pieces of work. kronsparse::Timer. */
typedef struct kronsparse_timer kronsparse_timer;
KRONSPARSE_API kronsparse_status kronsparse_timer_create(const char* device, void* stream,
                                                         kronsparse_timer** timer);
KRONSPARSE_API kronsparse_status kronsparse_timer_mark(kronsparse_timer* timer);
/* Waits for the marks and writes the seconds between each and the next, with capacity and count as in
 * kronsparse_devices. */
KRONSPARSE_API kronsparse_status kronsparse_timer_seconds(const kronsparse_timer* timer, double* seconds,
                                                          size_t capacity, size_t* count);
/* NULL is allowed. */
KRONSPARSE_API void kronsparse_timer_destroy(kronsparse_timer* timer);

/* OpenCL's own objects beside ours: see kronsparse/opencl.hpp. Handles are passed as void*. */
/* A device that works in a context of the caller's. */
KRONSPARSE_API kronsparse_status kronsparse_opencl_device(void* context, void* device_id,
                                                          kronsparse_device* device);
/* The cl_context, cl_device_id and cl_command_queue (for a NULL stream) of a device; any of them may be NULL.
 */
KRONSPARSE_API kronsparse_status kronsparse_opencl_handles(const char* device, void** context,
                                                           void** device_id, void** queue);
/* An address that stands for a cl_mem, and its end. */
KRONSPARSE_API kronsparse_status kronsparse_opencl_address(const char* device, void* buffer, void** address);
KRONSPARSE_API kronsparse_status kronsparse_opencl_forget(const char* device, void* address);

/* Plans on the CPU, runs and forgets. The workspace is its own. */
KRONSPARSE_API kronsparse_status kronsparse_multiply(const kronsparse_problem* problem,
                                                     const void* const* values,
                                                     const kronsparse_operands* operands);

#ifdef __cplusplus
}
#endif

#endif /* KRONSPARSE_H */

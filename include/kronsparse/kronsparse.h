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

/* A problem; the fields of kronsparse::Problem. Start from
 * kronsparse_problem_parse or from a zeroed struct with a,b,c,d and batch set
 * (zero is every other field's default). */
typedef struct kronsparse_problem {
  int64_t a, b, c, d;
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

/* Pointers of one run; unused ones are NULL. */
typedef struct kronsparse_operands {
  const void* x;
  void* y;
  const void* bias;
  const void* g;
  void* stream;
} kronsparse_operands;

typedef struct kronsparse_plan kronsparse_plan;

/* "0.1.0" */
KRONSPARSE_API const char* kronsparse_version(void);
/* Message of the last failure on this thread; "" if there was none. Valid
 * until the next call on this thread. */
KRONSPARSE_API const char* kronsparse_last_error(void);
/* "ok", "invalid_argument", ...; "unknown" for a number that is no status. */
KRONSPARSE_API const char* kronsparse_status_name(kronsparse_status status);

/* Reads the text form, e.g. "f32 batch_first B=64 4x64x64x16 +bias". */
KRONSPARSE_API kronsparse_status kronsparse_problem_parse(const char* text, kronsparse_problem* problem);
/* Writes the text form and its terminating zero, if `size` bytes hold it
 * (otherwise size_mismatch; 256 bytes always do). */
KRONSPARSE_API kronsparse_status kronsparse_problem_print(const kronsparse_problem* problem, char* text,
                                                          size_t size);

/* What the cost model expects of the implementation that a plan on this device
 * would take, in seconds per run. Nothing is allocated or measured. device and
 * implementation as for kronsparse_plan_create. */
KRONSPARSE_API kronsparse_status kronsparse_predict(const kronsparse_problem* problem, const char* device,
                                                    const char* implementation, double* seconds);

/* Makes a plan. device: "cpu", "cuda:0", ...; NULL is the CPU. implementation:
 * a name to force one, or NULL. values may be NULL only for the gradient. */
KRONSPARSE_API kronsparse_status kronsparse_plan_create(const kronsparse_problem* problem, const void* values,
                                                        const char* device, const char* implementation,
                                                        kronsparse_plan** plan);
/* Packs new values; not while runs are in flight. */
KRONSPARSE_API kronsparse_status kronsparse_plan_set_values(kronsparse_plan* plan, const void* values);
KRONSPARSE_API kronsparse_status kronsparse_plan_run(const kronsparse_plan* plan,
                                                     const kronsparse_operands* operands);
/* Name of the chosen implementation; lives as long as the plan. NULL for a null plan. */
KRONSPARSE_API const char* kronsparse_plan_implementation(const kronsparse_plan* plan);
/* NULL is allowed. */
KRONSPARSE_API void kronsparse_plan_destroy(kronsparse_plan* plan);

/* Plans on the CPU, runs and forgets. */
KRONSPARSE_API kronsparse_status kronsparse_multiply(const kronsparse_problem* problem, const void* values,
                                                     const kronsparse_operands* operands);

#ifdef __cplusplus
}
#endif

#endif /* KRONSPARSE_H */

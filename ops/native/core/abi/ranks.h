/* The part of the C ABI about ranks: processes of MPI, or threads, and their collectives in host
 * memory (design 0009). A group is a name in the process, as tables are; ops find it by that. R
 * ranks. Calls return what those of abi/c_api.h return. All ranks make the same calls in the same
 * order; what: for messages, the same on all. */
#pragma once

#include "core/abi/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of all processes that MPI started; all call it. library: path of MPI's library, where it is not
 * loaded under its own name. */
HR_API int hr_ranks_create_mpi(const char* name, const char* library, double timeout_seconds);
/* names: (count), of ranks 0 to count - 1, all in this process. */
HR_API int hr_ranks_create_threads(const char* const* names, int count, double timeout_seconds);
/* Forgets the name; the last reference ends the rank. */
HR_API int hr_ranks_drop(const char* name);

typedef struct hr_ranks hr_ranks; /* a reference; give it back with hr_ranks_release */
HR_API int hr_ranks_open(const char* name, hr_ranks** ranks);
HR_API void hr_ranks_release(hr_ranks* ranks);
HR_API int hr_ranks_rank(const hr_ranks* ranks);
HR_API int hr_ranks_size(const hr_ranks* ranks);

/* How they exchange what is in memory of GPUs, before they first do. auto: by NCCL where each has a
 * GPU of its own, else by way of the host's memory. nccl_library: path of libnccl.so.2, where it is
 * not found by its own name; "" otherwise. timeout_seconds: of NCCL's calls. */
enum { HR_DEVICE_AUTO = 0, HR_DEVICE_NCCL = 1, HR_DEVICE_HOST = 2 };
HR_API int hr_ranks_set_device(hr_ranks* ranks, int wanted, const char* nccl_library,
                               double timeout_seconds);
/* How they do it: "nccl", "host", "threads" (of one process, with one GPU); "" before they first
 * do. The next call of the thread may change the text. */
HR_API const char* hr_ranks_device(const hr_ranks* ranks);

/* What ranks said, of sizes that nobody else knew. */
typedef struct hr_gathered hr_gathered;
HR_API void hr_gathered_release(hr_gathered* gathered);
HR_API const void* hr_gathered_data(const hr_gathered* gathered, int rank, size_t* bytes);

/* Of every rank. */
HR_API int hr_ranks_all_gather(hr_ranks* ranks, const char* what, const void* data, size_t bytes,
                               hr_gathered** gathered);
/* Of rank 0, as its; data of others is ignored. */
HR_API int hr_ranks_broadcast(hr_ranks* ranks, const char* what, const void* data, size_t bytes,
                              hr_gathered** gathered);
/* values: (count), replaced by their sums. Where ranks do not agree about count and type, all fail
 * with InvalidArgument and go on. */
HR_API int hr_ranks_all_reduce_floats(hr_ranks* ranks, const char* what, float* values,
                                      size_t count);
HR_API int hr_ranks_all_reduce_doubles(hr_ranks* ranks, const char* what, double* values,
                                       size_t count);
HR_API int hr_ranks_barrier(hr_ranks* ranks, const char* what);
/* Reports to all ranks that this one cannot go on; their collectives fail with this code and "rank
 * R: message". From any thread. */
HR_API int hr_ranks_fail(hr_ranks* ranks, int code, const char* message);

/* Sums of float32 values that travel while something else is done. values[i]: (counts[i]), copied
 * at once; the ticket is of this process. Does not wait. */
HR_API int hr_ranks_sum_start(hr_ranks* ranks, const char* what, const float* const* values,
                              const size_t* counts, size_t arrays, int64_t* ticket);
/* done: called once with 0 and the sums, which it gives to hr_sums_release at some time, or with a
 * code, a message and null; by another thread, or at once. It must not wait. Where this call fails,
 * `done` is not called. */
typedef struct hr_sums hr_sums;
HR_API int hr_ranks_sum_finish(int64_t ticket, size_t count, void* context,
                               void (*done)(void* context, int code, const char* message,
                                            hr_sums* sums));
/* Of all arrays, one after the other: (count). */
HR_API const float* hr_sums_values(const hr_sums* sums);
HR_API void hr_sums_release(hr_sums* sums);

typedef struct { /* of a stage, of all calls so far; bytes to and from other ranks */
  uint64_t calls;
  uint64_t bytes_sent;
  uint64_t bytes_received;
  uint64_t nanoseconds;
} hr_stage_count;
HR_API int hr_ranks_count(hr_ranks* ranks, const char* stage, uint64_t bytes_sent,
                          uint64_t bytes_received, uint64_t nanoseconds);
/* In the order of the first calls. */
HR_API int hr_ranks_counts(const hr_ranks* ranks, void* context,
                           void (*visit)(void* context, const char* stage,
                                         const hr_stage_count* count));

#ifdef __cplusplus
}
#endif

/* The part of the C ABI for ranks, which are processes of MPI or threads, and their collectives in
 * host memory (design 0009). A group has a name in the process, as a table does, by which ops find
 * it. R ranks. Calls return a status as in abi/c_api.h. All ranks make the same calls in the same
 * order; what: for messages, the same on all ranks. */
#pragma once

#include "core/abi/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ranks of all processes that MPI started; all call it. library: path of MPI's library, if it is
 * not loaded under its own name. */
HR_API int hr_ranks_create_mpi(const char* name, const char* library, double timeout_seconds);
/* names: (count), of ranks 0 to count - 1, all in this process. */
HR_API int hr_ranks_create_threads(const char* const* names, int count, double timeout_seconds);
/* Removes the name; the last reference ends the rank. */
HR_API int hr_ranks_drop(const char* name);

typedef struct hr_ranks hr_ranks; /* a reference; release it with hr_ranks_release */
HR_API int hr_ranks_open(const char* name, hr_ranks** ranks);
HR_API void hr_ranks_release(hr_ranks* ranks);
HR_API int hr_ranks_rank(const hr_ranks* ranks);
HR_API int hr_ranks_size(const hr_ranks* ranks);

/* Sets how ranks exchange data in GPU memory; call it before the first such exchange. auto: NCCL
 * where each rank has its own GPU, else the host's memory. nccl_library: path of libnccl.so.2, if
 * it is not found by its own name; "" otherwise. timeout_seconds: of NCCL's calls. */
enum { HR_DEVICE_AUTO = 0, HR_DEVICE_NCCL = 1, HR_DEVICE_HOST = 2 };
HR_API int hr_ranks_set_device(hr_ranks* ranks, int wanted, const char* nccl_library,
                               double timeout_seconds);
/* How ranks exchange data in GPU memory: "nccl", "host", "threads" (of one process, with one GPU);
 * "" before the first exchange. The thread's next call may change the text. */
HR_API const char* hr_ranks_device(const hr_ranks* ranks);

/* Data of each rank, of sizes that other ranks did not know. */
typedef struct hr_gathered hr_gathered;
HR_API void hr_gathered_release(hr_gathered* gathered);
HR_API const void* hr_gathered_data(const hr_gathered* gathered, int rank, size_t* bytes);

/* Gathers the data of every rank. */
HR_API int hr_ranks_all_gather(hr_ranks* ranks, const char* what, const void* data, size_t bytes,
                               hr_gathered** gathered);
/* Sends rank 0's data to all, as gathered from rank 0; other ranks' data are ignored. */
HR_API int hr_ranks_broadcast(hr_ranks* ranks, const char* what, const void* data, size_t bytes,
                              hr_gathered** gathered);
/* values: (count), replaced by their sums. When ranks disagree about count or type, all fail with
 * InvalidArgument and can continue. */
HR_API int hr_ranks_all_reduce_floats(hr_ranks* ranks, const char* what, float* values,
                                      size_t count);
HR_API int hr_ranks_all_reduce_doubles(hr_ranks* ranks, const char* what, double* values,
                                       size_t count);
HR_API int hr_ranks_barrier(hr_ranks* ranks, const char* what);
/* Reports to all ranks that this rank failed; their collectives fail with this code and "rank R:
 * message". From any thread. */
HR_API int hr_ranks_fail(hr_ranks* ranks, int code, const char* message);

/* Starts a pending all-reduce of float32 values, which overlaps with other work. values[i]:
 * (counts[i]), copied at once; the ticket is unique in this process. Does not wait. */
HR_API int hr_ranks_sum_start(hr_ranks* ranks, const char* what, const float* const* values,
                              const size_t* counts, size_t arrays, int64_t* ticket);
/* done: called once, from another thread or at once, with 0 and the sums, or with a code, a message
 * and null. The caller releases the sums with hr_sums_release. `done` must not wait. If this call
 * fails, `done` is not called. */
typedef struct hr_sums hr_sums;
HR_API int hr_ranks_sum_finish(int64_t ticket, size_t count, void* context,
                               void (*done)(void* context, int code, const char* message,
                                            hr_sums* sums));
/* The sums of all arrays, one after the other: (count). */
HR_API const float* hr_sums_values(const hr_sums* sums);
HR_API void hr_sums_release(hr_sums* sums);

typedef struct { /* of a stage, over all calls; bytes to and from other ranks */
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

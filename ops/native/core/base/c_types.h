/* Types of the C ABI (abi/c_api.h) that rooms below it take: functions of the caller. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Threads of somebody else: run calls task(argument, i) once for each i < tasks, on several
 * threads, the caller's among them, and returns when all are done. */
typedef struct {
  void* context;
  size_t threads;
  void (*run)(void* context, size_t tasks, void (*task)(void* argument, size_t i), void* argument);
} hr_executor;

/* Memory of a GPU, of somebody else, for instance of a framework that has taken all of it.
 * allocate: aligned to 256 bytes; null: there is none, and the call fails with ResourceExhausted.
 * Both may be called by any thread, as long as there are tables that took memory here. */
typedef struct {
  void* context;
  void* (*allocate)(void* context, size_t bytes);
  void (*release)(void* context, void* at);
} hr_device_allocator;

#ifdef __cplusplus
}
#endif

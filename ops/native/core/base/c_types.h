/* Types of the C ABI (abi/c_api.h) that lower rooms use: functions of the caller. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The caller's threads. run calls task(argument, i) once for each i < tasks, on several threads
 * including the calling one, and returns when all are done. */
typedef struct {
  void* context;
  size_t threads;
  void (*run)(void* context, size_t tasks, void (*task)(void* argument, size_t i), void* argument);
} hr_executor;

/* The caller's allocator of GPU memory, for instance a framework's that has taken all of it.
 * allocate: returns memory aligned to 256 bytes; null: there is none, and the call fails with
 * ResourceExhausted. Any thread may call both, as long as there are tables with memory from it. */
typedef struct {
  void* context;
  void* (*allocate)(void* context, size_t bytes);
  void (*release)(void* context, void* at);
} hr_device_allocator;

#ifdef __cplusplus
}
#endif

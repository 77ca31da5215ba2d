// Runs the tests of the device's kernels on a GPU; without a GPU it prints so and exits with 77.
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <cstdio>

#include "tests/test_size.h"

int main(int argc, char** argv) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("no GPU: %s\n", cudaGetErrorString(error));
    return 77;
  }
  cudaDeviceProp device;
  if (cudaGetDeviceProperties(&device, 0) == cudaSuccess) std::printf("on %s\n", device.name);
  hotrow::read_test_size(argc, argv);
  return doctest::Context(argc, argv).run();
}

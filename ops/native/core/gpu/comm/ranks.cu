#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/gpu/comm/nccl_communicator.h"
#include "core/gpu/comm/ranks.h"
#include "core/gpu/comm/staged_communicator.h"
#include "core/gpu/kernels/api.h"

namespace hotrow {
namespace {

// The machine, process and GPU of a rank.
struct Place {
  uint64_t machine = 0;
  int64_t process = 0;
  int64_t has_nccl = 0;
  char gpu[32] = {};

  bool same_gpu(const Place& other) const {
    return machine == other.machine && std::strcmp(gpu, other.gpu) == 0;
  }
};

uint64_t this_machine() {
  std::string name;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> name;  // containers of a machine share it
  if (name.empty()) {
    char host[256] = {};
    (void)gethostname(host, sizeof(host) - 1);
    name = host;
  }
  return std::hash<std::string>()(name);
}

std::vector<Place> places_of(Communicator& host, int device, const std::string& nccl_library) {
  Place own;
  own.machine = this_machine();
  own.process = getpid();
  own.has_nccl = has_nccl(nccl_library) ? 1 : 0;
  check(cudaDeviceGetPCIBusId(own.gpu, sizeof(own.gpu), device), "the name of a GPU");
  const size_t n = static_cast<size_t>(host.size());
  std::vector<Place> all(n);
  const std::vector<size_t> bytes(n, sizeof(Place));
  host.all_gather(reinterpret_cast<const std::byte*>(&own),
                  reinterpret_cast<std::byte*>(all.data()), bytes.data());
  return all;
}

void make(Communicator& host, int device, DeviceRanks* ranks) {
  const std::vector<Place> places = places_of(host, device, ranks->nccl_library);
  bool apart = true, one_process = true, nccl = true;
  size_t first = 0, second = 0;  // with one GPU
  for (size_t r = 0; r < places.size(); ++r) {
    nccl = nccl && places[r].has_nccl != 0;
    one_process =
        one_process && places[r].same_gpu(places[0]) && places[r].process == places[0].process;
    for (size_t q = 0; q < r && apart; ++q) {
      if (!places[r].same_gpu(places[q])) continue;
      apart = false;
      first = q;
      second = r;
    }
  }
  if (ranks->wanted == DeviceCollectives::kNccl && !apart) {
    throw AgreedError(Code::kInvalidArgument, "ranks " + std::to_string(first) + " and " +
                                                  std::to_string(second) + " have one GPU, " +
                                                  places[first].gpu +
                                                  ", and NCCL needs one for each: start as many "
                                                  "ranks on a machine as it has GPUs, or set "
                                                  "parallel.device_collectives: host");
  }
  if (ranks->wanted == DeviceCollectives::kNccl ||
      (ranks->wanted == DeviceCollectives::kAuto && apart && nccl)) {
    ranks->communicator =
        nccl_communicator(host, device, ranks->nccl_library, ranks->timeout_seconds);
    ranks->chosen = "nccl";
  } else if (ranks->wanted == DeviceCollectives::kAuto && one_process) {
    ranks->communicator = thread_device_communicator(host, device);
    ranks->chosen = "threads";
  } else {
    ranks->communicator = staged_communicator(host, device);
    ranks->chosen = "host";
  }
}

}  // namespace

DeviceCommunicator& device_communicator_of(Collectives& ranks, int device) {
  DeviceRanks& on_device = ranks.device();
  if (on_device.communicator == nullptr) {
    ranks.run("the GPUs of the ranks", [&](Communicator& host) { make(host, device, &on_device); });
  }
  if (on_device.communicator->device() != device) {
    fail(Code::kInvalidArgument, "rank %d has tables on GPU %d and on GPU %d; one for all of them",
         ranks.rank(), on_device.communicator->device(), device);
  }
  return *on_device.communicator;
}

}  // namespace hotrow

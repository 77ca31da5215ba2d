// Collectives among ranks in the memory of a GPU: the sibling of comm/communicator.h. Its ranks are
// the ranks of a Communicator in host memory, through which they agree beforehand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/gpu/kernels/memory.h"

namespace hotrow {

// All ranks make the same calls in the same order, each from the thread that may use its host
// communicator. Pointers are to device memory, sizes are in host memory. A call reads and writes in
// stream order: after earlier work on the stream, and before later work. It returns when the work
// is enqueued, so only `finish` reports failures of the network. Calls fail as a Communicator's do.
// Ranks first agree about sizes through the host's collectives, whose errors name a missing rank.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator();
  DeviceCommunicator(const DeviceCommunicator&) = delete;

  int rank() const { return host_.rank(); }
  int size() const { return host_.size(); }
  // Memory and streams must belong to it.
  int device() const { return device_; }

  // As Communicator::begin.
  void begin(const std::string& what);
  // send: send_bytes[r] bytes for each rank r, one after the other; receive: receive_bytes[r] from
  // each. Both (R).
  void all_to_all(const std::byte* send, const size_t* send_bytes, std::byte* receive,
                  const size_t* receive_bytes, DeviceStream stream);
  // receive: what each rank sent, bytes[r] of rank r, one after the other. bytes: (R).
  void all_gather(const std::byte* send, std::byte* receive, const size_t* bytes,
                  DeviceStream stream);
  // Sums have the bits of Communicator's: they are taken in the order of the ranks.
  // send: (sum of counts); receive: the sums of this rank's part, (counts[rank]). counts: (R).
  void reduce_scatter(const float* send, float* receive, const size_t* counts, DeviceStream stream);
  // values: (count), replaced by their sums.
  void all_reduce(float* values, size_t count, DeviceStream stream);
  // data: (bytes); all ranks receive rank `root`'s.
  void broadcast(std::byte* data, size_t bytes, int root, DeviceStream stream);
  // Returns when all enqueued work is done.
  void finish();

 protected:
  // device: current in the calling thread during the call. The host communicator must outlive this.
  DeviceCommunicator(Communicator& host, int device);

  // A message to each rank, and one from each. All (R).
  struct Exchange {
    const std::byte* send;
    std::vector<size_t> send_begin, send_bytes;
    std::byte* receive;
    std::vector<size_t> receive_begin, receive_bytes;
  };
  // Enqueues it on `own`, which waits for earlier work on the caller's stream; the caller's stream
  // then waits for it.
  virtual void run(const Exchange& exchange, DeviceStream own) = 0;
  // Returns when the work on `own` is done.
  virtual void wait(DeviceStream own) = 0;
  // Called after the exchange: makes later work on the caller's stream, which may overwrite sent
  // data, wait until the data are read.
  virtual void hold(DeviceStream stream) = 0;

  Communicator& host() const { return host_; }
  const std::string& what() const { return what_; }

 private:
  void start(Exchange& exchange, DeviceStream stream);
  void sum(const float* send, float* receive, const std::vector<size_t>& counts,
           DeviceStream stream);

  Communicator& host_;
  const int device_;
  std::string what_;
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

// Ranks that are threads of this process with one GPU: by copies on it. All ranks call it.
std::unique_ptr<DeviceCommunicator> thread_device_communicator(Communicator& host, int device);

}  // namespace hotrow

#include "core/gpu/comm/nccl_communicator.h"

#include <cuda_runtime.h>

#include <chrono>
#include <thread>
#include <utility>

#include "core/base/back_off.h"
#include "core/gpu/comm/nccl_library.h"
#include "core/gpu/kernels/runtime.h"

namespace hotrow {
namespace {

constexpr std::chrono::seconds kLongestEnd(5);

class NcclCommunicator final : public DeviceCommunicator {
 public:
  // Uses NCCL's non-blocking mode: this thread detects other ranks' failures while it waits.
  NcclCommunicator(Communicator& host, int device, const std::string& library,
                   double timeout_seconds)
      : DeviceCommunicator(host, device), nccl_(library), seconds_(timeout_seconds) {
    ncclUniqueId id = {};
    if (rank() == 0) nccl_.check(nccl_.unique_id(&id), "ncclGetUniqueId");
    host.broadcast(reinterpret_cast<std::byte*>(&id), sizeof(id), 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      nccl_.check(nccl_.init(&comm_, size(), id, rank(), &config), "ncclCommInitRankConfig");
      await("the start of NCCL", [this] { return is_idle(); });
    } catch (...) {
      give_up();
      throw;
    }
  }

  ~NcclCommunicator() override {
    try {
      const OnDevice here(device());
      if (comm_ != nullptr) {
        nccl_.check(nccl_.finalize(comm_), "ncclCommFinalize");
        // Does not use the host's ranks: at the end of a program MPI may be finalised.
        const auto last = std::chrono::steady_clock::now() + kLongestEnd;
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress && std::chrono::steady_clock::now() < last) {
          nccl_.check(nccl_.async_error(comm_, &state), "ncclCommGetAsyncError");
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        if (state == ncclSuccess) {
          nccl_.destroy(std::exchange(comm_, nullptr));
          return;
        }
      }
    } catch (const std::exception&) {
      // Other ranks are gone; no rank is left to receive a message.
    }
    give_up();
  }

 private:
  void run(const Exchange& exchange, DeviceStream own) override {
    const auto asked = [&](ncclResult_t result, const char* what) { must(result, what); };
    asked(nccl_.group_start(), "ncclGroupStart");
    for (int r = 0; r < size(); ++r) {
      const size_t i = static_cast<size_t>(r);
      if (exchange.send_bytes[i] > 0) {
        asked(nccl_.send(exchange.send + exchange.send_begin[i], exchange.send_bytes[i], ncclUint8,
                         r, comm_, own),
              "ncclSend");
      }
      if (exchange.receive_bytes[i] > 0) {
        asked(nccl_.receive(exchange.receive + exchange.receive_begin[i], exchange.receive_bytes[i],
                            ncclUint8, r, comm_, own),
              "ncclRecv");
      }
    }
    asked(nccl_.group_end(), "ncclGroupEnd");
    // Waits until it is on the stream; for the first message to a rank, this needs that rank.
    await("an exchange", [this] { return is_idle(); });
  }

  void wait(DeviceStream own) override {
    await("an exchange", [&] {
      is_idle();
      const cudaError_t error = cudaStreamQuery(own);
      if (error == cudaErrorNotReady) {
        forget_last_error();
        return false;
      }
      hotrow::check(error, "wait for NCCL");
      return true;
    });
  }

  void hold(DeviceStream) override {}  // what was sent has been read when the exchange is done

  // Whether all calls of NCCL have ended. Fails as they do.
  bool is_idle() {
    ncclResult_t state = ncclSuccess;
    must(nccl_.async_error(comm_, &state), "ncclCommGetAsyncError");
    must(state, "NCCL");
    return state == ncclSuccess;
  }

  // Aborts work on a stream that waits for ranks which will not come.
  void give_up() {
    if (comm_ != nullptr) nccl_.abort(std::exchange(comm_, nullptr));
  }

  // Fails on all ranks if the call failed.
  void must(ncclResult_t result, const char* call) {
    try {
      nccl_.check(result, call);
    } catch (const Error& error) {
      give_up();
      host().fail(error.code(), "in \"" + what() + "\": " + error.what());
      throw;
    }
  }

  template <typename Condition>
  void await(const char* which, Condition&& condition) {
    BackOff back_off;
    while (!condition()) {
      back_off.pause();
      if (!back_off.sleeps()) continue;
      const double waited = std::chrono::duration<double>(back_off.waited()).count();
      try {
        host().begin(what());  // detects failures
        if (waited < seconds_) continue;
        host().fail(Code::kDeadlineExceeded, "waited " + std::to_string(seconds_) + " s in " +
                                                 which + " of \"" + what() + "\" by NCCL");
        host().begin(what());
      } catch (const Error&) {
        give_up();
        throw;
      }
    }
  }

  const NcclLibrary nccl_;
  const double seconds_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> nccl_communicator(Communicator& host, int device,
                                                      const std::string& library,
                                                      double timeout_seconds) {
  if (!(timeout_seconds > 0)) {
    fail(Code::kInvalidArgument, "timeout of %g seconds; more than 0", timeout_seconds);
  }
  const OnDevice here(device);
  return std::make_unique<NcclCommunicator>(host, device, library, timeout_seconds);
}

bool has_nccl(const std::string& library) {
  try {
    const NcclLibrary nccl(library);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace hotrow

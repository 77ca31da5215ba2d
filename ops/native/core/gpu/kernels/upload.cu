#include <cstring>

#include "core/gpu/kernels/described.h"
#include "core/gpu/kernels/device_code.h"

namespace hotrow {
namespace {

__global__ void write_piece(UploadPiece piece, uint32_t* to, unsigned words) {
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) {
    to[i] = reinterpret_cast<const uint32_t*>(piece.bytes)[i];
  }
}

}  // namespace

void upload_bytes(void* to, const void* from, size_t bytes, DeviceStream stream) {
  for (size_t done = 0; done < bytes; done += kUploadBytes) {
    const size_t size = bytes - done < kUploadBytes ? bytes - done : kUploadBytes;
    UploadPiece piece = {};
    std::memcpy(piece.bytes, static_cast<const std::byte*>(from) + done, size);
    launch("upload", write_piece, 1, kBlockThreads, stream, piece,
           reinterpret_cast<uint32_t*>(static_cast<std::byte*>(to) + done),
           static_cast<unsigned>(size / 4));
  }
}

void DeviceDescribed::upload(DeviceStream stream) {
  upload_bytes(at_ + sent_, waiting_.data(), waiting_.size(), stream);
  sent_ = end();
  waiting_.clear();
}

}  // namespace hotrow

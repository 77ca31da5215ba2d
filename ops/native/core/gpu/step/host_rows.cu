#include <algorithm>

#include "core/gpu/kernels/device_code.h"
#include "core/gpu/step/host_rows.h"

namespace hotrow {
namespace {

constexpr size_t kFirstBlocks = 128;  // room in a partition's list

__global__ void note_blocks(const NewHostBlock* blocks, uint32_t count) {
  for (size_t i = thread_index(); i < count; i += thread_stride()) *blocks[i].to = blocks[i].block;
}

}  // namespace

HostRows::HostRows(Table& table, uint64_t* written_back)
    : table_(&table),
      device_(table.options().cache.gpu),
      written_back_(written_back),
      known_(table.partition_count(), 0) {
  table.row_memory().set_listener(this);
}

HostRows::~HostRows() { table_->row_memory().set_listener(nullptr); }

DeviceHostRows HostRows::rows() const {
  const RowShape& shape = table_->shape();
  DeviceHostRows rows;
  rows.blocks = reinterpret_cast<std::byte* const*>(addresses_.data());
  rows.written_back = written_back_;
  rows.most_blocks = static_cast<uint32_t>(most_blocks_);
  rows.first_shift = shape.first_shift;
  rows.stride = static_cast<uint32_t>(shape.host_stride);
  rows.row_bytes = static_cast<uint32_t>(sizeof(RowHeader) + shape.line_bytes);
  rows.shards = static_cast<int32_t>(table_->shard_count());
  rows.hashed = table_->hashed() ? 1 : 0;
  return rows;
}

void HostRows::list_new(std::vector<NewHostBlock>* blocks) {
  const size_t partitions = table_->partition_count();
  size_t most = std::max(most_blocks_, kFirstBlocks);
  for (size_t p = 0; p < partitions; ++p) {
    while (most < table_->partition(p).blocks().size()) most *= 2;
  }
  if (most != most_blocks_) {
    forget();  // even if there is no memory: it is gone
    most_blocks_ = 0;
    addresses_.reserve(partitions * most * sizeof(std::byte*));
    most_blocks_ = most;
  }
  auto** const addresses = reinterpret_cast<std::byte**>(addresses_.data());
  for (size_t p = 0; p < partitions; ++p) {
    const std::vector<std::byte*>& all = table_->partition(p).blocks();
    for (size_t b = known_[p]; b < all.size(); ++b) {
      blocks->push_back({addresses + p * most_blocks_ + b, on_device(all[b])});
    }
  }
}

void HostRows::note_known() {
  for (size_t p = 0; p < known_.size(); ++p) known_[p] = table_->partition(p).blocks().size();
}

void NewHostBlocks::send(const std::vector<HostRows*>& tables, DeviceStream stream) {
  blocks_.clear();
  for (HostRows* table : tables) table->list_new(&blocks_);
  const size_t count = blocks_.size();
  if (count == 0) return;
  const auto take = [&](DeviceArena& arena) { return arena.take<NewHostBlock>(count); };
  NewHostBlock* const there = take_from(device_, take);
  NewHostBlock* const sent = take_from(pinned_, take);
  std::copy(blocks_.begin(), blocks_.end(), sent);
  copy_async(there, sent, count, stream);
  launch("rows: blocks", note_blocks, blocks_for(count), kBlockThreads, stream, there,
         static_cast<uint32_t>(count));
  for (HostRows* table : tables) table->note_known();
}

// --- registered memory ---------------------------------------------------------------------------

void HostRows::add_slab(std::byte* at, size_t bytes) {
  // Threads of a search take memory, too; their current device is any.
  const OnDevice here(device_);
  cudaError_t error =
      cudaHostRegister(at, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  void* there = nullptr;
  if (error == cudaSuccess) {
    error = cudaHostGetDevicePointer(&there, at, 0);
    if (error != cudaSuccess) {
      ignore(error);
      ignore(cudaHostUnregister(at));
    }
  }
  if (error != cudaSuccess) {
    ignore(error);
    fail(Code::kResourceExhausted,
         "table %s: CUDA cannot register %zu bytes of its rows in RAM for GPU %d: %s; the process "
         "needs that much memory that cannot be swapped out, or use device: cpu",
         table_->name().c_str(), bytes, device_, cudaGetErrorString(error));
  }
  const Slab slab{at, static_cast<std::byte*>(there), bytes};
  try {
    slabs_.insert(std::upper_bound(slabs_.begin(), slabs_.end(), slab,
                                   [](const Slab& a, const Slab& b) { return a.at < b.at; }),
                  slab);
  } catch (...) {
    ignore(cudaHostUnregister(at));
    throw;
  }
}

void HostRows::remove_slab(std::byte* at) noexcept {
  for (size_t i = 0; i < slabs_.size(); ++i) {
    if (slabs_[i].at != at) continue;
    slabs_.erase(slabs_.begin() + static_cast<std::ptrdiff_t>(i));
    ignore(cudaHostUnregister(at));
    return;
  }
}

std::byte* HostRows::on_device(std::byte* block) const {
  const auto next = std::upper_bound(slabs_.begin(), slabs_.end(), block,
                                     [](std::byte* at, const Slab& slab) { return at < slab.at; });
  if (next == slabs_.begin() || block >= std::prev(next)->at + std::prev(next)->bytes) {
    fail(Code::kInternal, "table %s: a block of rows in memory that is not registered",
         table_->name().c_str());
  }
  const Slab& slab = *std::prev(next);
  return slab.on_device + (block - slab.at);
}

}  // namespace hotrow

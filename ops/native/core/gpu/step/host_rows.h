// The rows of a table's host tier, where kernels of a GPU read and write them: its memory is
// registered with CUDA as long as it exists, and the device knows the addresses of its blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/slab_memory.h"
#include "core/gpu/kernels/lines.h"
#include "core/gpu/kernels/runtime.h"
#include "core/table/table.h"

namespace hotrow {

// A block whose address the device does not know yet.
struct NewHostBlock {
  std::byte** to;    // on the device
  std::byte* block;  // where kernels reach it
};

class HostRows final : public SlabListener {
 public:
  // Construct it with the table's GPU current; written_back: as in DeviceHostRows. Fails with
  // ResourceExhausted when the memory of the rows cannot be registered. So do calls of the table
  // that need more memory for rows: then no row has changed.
  HostRows(Table& table, uint64_t* written_back);
  // No work on the device uses the rows any more.
  ~HostRows() override;
  HostRows(const HostRows&) = delete;

  // Once NewHostBlocks has sent their blocks.
  DeviceHostRows rows() const;
  // Appends the blocks that came since note_known, and makes room for their addresses.
  void list_new(std::vector<NewHostBlock>* blocks);
  // The device knows all that list_new listed.
  void note_known();
  // The table has no blocks any more.
  void forget() { known_.assign(known_.size(), 0); }
  // Of the device's memory.
  size_t bytes() const { return addresses_.bytes(); }

 private:
  struct Slab {
    std::byte *at, *on_device;
    size_t bytes;
  };
  void add_slab(std::byte* at, size_t bytes) override;
  void remove_slab(std::byte* at) noexcept override;
  std::byte* on_device(std::byte* block) const;

  Table* table_;
  const int device_;
  uint64_t* written_back_;
  std::vector<Slab> slabs_;  // by address
  DeviceBlock addresses_;    // (partitions, most_blocks_)
  size_t most_blocks_ = 0;
  std::vector<size_t> known_;  // (partitions) blocks that the device knows
};

// Sends addresses of new blocks to the device, of several tables together.
class NewHostBlocks {
 public:
  // Before a kernel uses rows that may be new. Earlier work with this object has ended. Allocates
  // memory.
  void send(const std::vector<HostRows*>& tables, DeviceStream stream);
  size_t bytes() const { return device_.bytes(); }

 private:
  std::vector<NewHostBlock> blocks_;
  PinnedBlock pinned_;
  DeviceBlock device_;
};

}  // namespace hotrow

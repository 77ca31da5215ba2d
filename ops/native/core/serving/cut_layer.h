// Rows that cuts have changed, in memory. A server lays them over the rows of its store until they
// are folded into the store (docs/design/0008-cuts.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/serving/hot_rows.h"
#include "core/store/row_reader.h"

namespace hotrow {

// The keys of a layer in the memory of a GPU (serving/device_rows.h).
class DeviceLayer {
 public:
  virtual ~DeviceLayer() = default;
};

// Rows of a cut in a file.
struct LayerFile {
  std::string path;
  RowVersion version;  // of the cut

  bool operator==(const LayerFile& other) const {
    return version == other.version && path == other.path;
  }
};

// The rows of one cut, or of several: of a key, the newest one. Immutable once its tables share it.
class CutLayer {
 public:
  // path: of a file of whole blocks, one after the other (docs/formats.md, "Cuts"). version: of the
  // cut. tables: of its generation. Fails with NotFound without the file, and with DataLoss for
  // blocks that are damaged or belong to another cut, and for dense weights.
  CutLayer(const std::string& path, RowVersion version, const std::vector<StoredTable>& tables);

  // Merges layers, the newest first: finds what an overlay of them finds. One at least.
  CutLayer(const std::vector<std::shared_ptr<const CutLayer>>& layers,
           const std::vector<StoredTable>& tables);

  RowVersion version() const { return files_.front().version; }  // of the newest cut
  // Its cuts, the newest first.
  const std::vector<LayerFile>& files() const { return files_; }
  size_t rows() const { return rows_; }  // tombstones, too
  size_t bytes() const;                  // of memory

  // A row as stored, or a tombstone.
  struct Row {
    bool known = false;                 // else the cut does not have the key
    const std::byte* stored = nullptr;  // null: a tombstone
  };
  Row find(size_t table, int64_t key) const {
    const Index& index = indexes_[table];
    if (index.slots.empty()) return {};
    for (size_t at = index.home(key);; at = (at + 1) & index.mask) {
      const Slot& slot = index.slots[at];
      if (slot.record == 0) return {};
      if (slot.key == key) return row_of(slot.record);
    }
  }
  // Prefetches what `find` reads first.
  void approach(size_t table, int64_t key) const {
    const Index& index = indexes_[table];
    if (!index.slots.empty()) __builtin_prefetch(&index.slots[index.home(key)]);
  }
  // Calls visit for pieces of the rows, in their order. keys: (count) of a table, distinct. rows:
  // (count, row_bytes); those of tombstones are undefined. versions: (count).
  using Visit = std::function<void(size_t table, const int64_t* keys, size_t count,
                                   const std::byte* rows, const RowVersion* versions)>;
  void visit(const Visit& visit) const;

  void set_on_device(std::shared_ptr<const DeviceLayer> keys) { on_device_ = std::move(keys); }
  const DeviceLayer* on_device() const { return on_device_.get(); }

 private:
  struct Slot {
    int64_t key;
    uint64_t record;  // offset in the file; 0: free
  };
  struct Index {
    std::vector<Slot> slots;  // a power of two, or none
    size_t mask = 0;
    size_t home(int64_t key) const { return mix64(static_cast<uint64_t>(key)) & mask; }
  };
  struct Block {
    size_t table;
    size_t first;  // offset of its records
    size_t count;
    size_t record_bytes;
  };

  Block read_block(const std::string& path, size_t offset,
                   const std::vector<StoredTable>& tables) const;
  // Makes room in the index of a table, which is empty.
  void reserve(size_t table, size_t rows);
  // Adds a key unless it is there; returns whether it was not.
  bool add(size_t table, int64_t key, uint64_t record);
  Row row_of(uint64_t record) const;

  std::vector<LayerFile> files_;
  size_t rows_ = 0;
  std::vector<std::byte> content_;
  std::vector<Block> blocks_;
  std::vector<Index> indexes_;  // by table
  std::shared_ptr<const DeviceLayer> on_device_;
};

// The layers of cuts that a servable lays over the store's rows. Immutable.
struct Overlay {
  // The version of the newest cut, or of the rows as exported: newer rows belong to a cut that was
  // not taken. 0: rows of any version are taken.
  RowVersion version = 0;
  std::vector<std::shared_ptr<const CutLayer>> layers;  // the newest first
  // The newest cut that is in the store's rows, not in a layer: rows of shards with a lower
  // watermark are older than this state, and fail. 0: they are not checked.
  RowVersion fence = 0;

  // Writes the rows of keys that a layer has to the outputs of the probes, and removes these keys
  // from the misses. tables: of the probes. misses: of these probes, in their order. Calls
  // counted(table, keys) for each probe with such keys.
  using Counted = std::function<void(size_t table, size_t keys)>;
  void lay_over(const std::vector<StoredTable>& tables, const HotRows::Probe* probes, size_t count,
                std::vector<HotRows::Miss>* misses, const Counted& counted) const;
  // Marks rows that are too new as failed. Returns whether there were any.
  bool refuse_new(const ReadRequest& read) const;

 private:
  CutLayer::Row find(size_t table, int64_t key) const;
};

}  // namespace hotrow

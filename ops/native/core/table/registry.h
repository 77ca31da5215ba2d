// The process-wide registry: tables by name, for training; the tables of a version, for serving.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/serving/tables.h"
#include "core/table/table.h"

namespace hotrow {

// --- training: a table is a name that ops resolve when they run -----------------------------
// handle: unique in the process; name: for messages. Fails with AlreadyExists.
std::shared_ptr<Table> create_table(const std::string& handle, const std::string& name,
                                    const TableOptions& options, int32_t shards, bool hashed,
                                    Sharding sharding = {});
// Fails with NotFound; it never creates a table.
std::shared_ptr<Table> find_table(const std::string& handle);
void drop_table(const std::string& handle);

// --- serving: the tables of a version --------------------------------------------------------
// Tables and their overlay. A request keeps both to its end.
struct Served {
  std::shared_ptr<const ServingTables> tables;  // null: no tables
  std::shared_ptr<const Overlay> overlay;
};

// Binds the tables of a version that a server loads. Fails with AlreadyExists for a (model,
// version) that is bound.
void bind_serving(const std::string& model, int64_t version, const std::string& manifest_path,
                  const ServingOptions& options);
// Binds (name, version) to the tables of (model, version) with their current overlay. Fails with
// AlreadyExists, and with NotFound or Unavailable when (model, version) is not bound.
void share_serving(const std::string& model, int64_t version, const std::string& name);
void unbind_serving(const std::string& model, int64_t version);
// From now on requests read the rows of a cut. Layers that are not listed were folded: their rows
// update the cache first. fence: as Overlay::fence. Fails as CutLayer does; then nothing has
// changed.
void show_serving(const std::string& model, int64_t version, RowVersion shown,
                  const std::vector<LayerFile>& layers, RowVersion fence = 0);
// Replaces older layers of a version by merged ones if it has many; requests read the same rows
// before and afterwards. It takes a while: call it beside requests. Fails with NotFound or
// Unavailable when it is not bound.
void merge_layers(const std::string& model, int64_t version);
// Returns no tables when (model, version) was never bound; fails with Unavailable when it is no
// longer bound.
Served find_serving(const std::string& model, int64_t version);
// The same, but fails with NotFound instead of returning no tables.
Served bound_serving(const std::string& model, int64_t version);
// For a SavedModel that no server manages: its tables are opened from its manifest, and kept while
// the file at this path is the same. attach_serving sets the options; without it the manifest's own
// embedded store is used.
std::shared_ptr<const ServingTables> attach_serving(const std::string& manifest_path,
                                                    const ServingOptions& options);
void detach_serving(const std::string& manifest_path);
// As show_serving. Fails with NotFound when the manifest is not attached.
void show_attached(const std::string& manifest_path, RowVersion shown,
                   const std::vector<LayerFile>& layers, RowVersion fence = 0);
// No tables when the manifest is not attached.
Served attached_serving(const std::string& manifest_path);
Served open_serving(const std::string& manifest_path);

}  // namespace hotrow

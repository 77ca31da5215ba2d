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
// Fails with NotFound: nothing here creates a table by looking it up.
std::shared_ptr<Table> find_table(const std::string& handle);
void drop_table(const std::string& handle);

// --- serving: the tables of a version --------------------------------------------------------
// Tables and what is laid over their rows. A request keeps it to its end.
struct Served {
  std::shared_ptr<const ServingTables> tables;  // null: there are none
  std::shared_ptr<const Overlay> overlay;
};

// What a server fills. Fails with AlreadyExists for a (model, version) that is bound.
void bind_serving(const std::string& model, int64_t version, const std::string& manifest_path,
                  const ServingOptions& options);
// Binds (name, version) to the tables of (model, version), with what is laid over these now. Fails
// with AlreadyExists, and with NotFound or Unavailable when these are not bound.
void share_serving(const std::string& model, int64_t version, const std::string& name);
void unbind_serving(const std::string& model, int64_t version);
// From now on requests see the rows of a cut. Layers that are left out were folded: the cache
// learns of their rows before. Fails as CutLayer does, and then nothing has changed.
struct LayerFile {
  std::string path;
  RowVersion version;
};
void show_serving(const std::string& model, int64_t version, RowVersion shown,
                  const std::vector<LayerFile>& layers);
// No tables when (model, version) was never bound; fails with Unavailable when it is not any more.
Served find_serving(const std::string& model, int64_t version);
// Fails with NotFound where that finds none.
Served bound_serving(const std::string& model, int64_t version);
// For a SavedModel that no server manages: opened from its manifest, and kept while the file at
// this path is the same. attach_serving says how; else it is the manifest's own embedded store.
std::shared_ptr<const ServingTables> attach_serving(const std::string& manifest_path,
                                                    const ServingOptions& options);
void detach_serving(const std::string& manifest_path);
// As show_serving. Fails with NotFound when the manifest is not attached.
void show_attached(const std::string& manifest_path, RowVersion shown,
                   const std::vector<LayerFile>& layers);
// No tables when the manifest is not attached.
Served attached_serving(const std::string& manifest_path);
Served open_serving(const std::string& manifest_path);

}  // namespace hotrow

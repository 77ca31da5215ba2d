#include "core/table/registry.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "core/base/status.h"
#include "core/serving/layers_to_merge.h"

namespace hotrow {
namespace {

// A manifest and the file that it was read from: a path may hold another version later.
struct Opened {
  Served served;
  dev_t device;
  ino_t inode;
  struct timespec modified;

  bool is(const struct stat& facts) const {
    return device == facts.st_dev && inode == facts.st_ino &&
           modified.tv_sec == facts.st_mtim.tv_sec && modified.tv_nsec == facts.st_mtim.tv_nsec;
  }
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<Table>> tables;
  std::map<std::pair<std::string, int64_t>, Served> bound;
  // All that were ever bound: a request that outlives its version must not fall back to the
  // manifest.
  std::set<std::pair<std::string, int64_t>> ever_bound;
  std::unordered_map<std::string, Opened> opened;  // by normal path
};

Registry& registry() {
  // Never destroyed: kernels may run while the process ends.
  static Registry* r = new Registry();
  return *r;
}

// The same however the path is written: attaching a manifest and loading its model may write it
// differently.
std::string normal_path(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

// The normal path of a manifest and the facts of its file.
std::pair<std::string, struct stat> look_at(const std::string& manifest_path) {
  const std::string path = normal_path(manifest_path);
  struct stat facts;
  if (::stat(path.c_str(), &facts) != 0) {
    fail(Code::kNotFound, "manifest %s: %s", path.c_str(), std::strerror(errno));
  }
  return {path, facts};
}

}  // namespace

std::shared_ptr<Table> create_table(const std::string& handle, const std::string& name,
                                    const TableOptions& options, int32_t shards, bool hashed,
                                    Sharding sharding) {
  auto table = std::make_shared<Table>(name, options, shards, hashed, std::move(sharding));
  std::lock_guard lock(registry().mutex);
  if (!registry().tables.emplace(handle, table).second) {
    fail(Code::kAlreadyExists, "table %s exists already in this process", handle.c_str());
  }
  return table;
}

std::shared_ptr<Table> find_table(const std::string& handle) {
  std::lock_guard lock(registry().mutex);
  auto found = registry().tables.find(handle);
  if (found == registry().tables.end()) {
    fail(Code::kNotFound,
         "table %s is not in this process: its layer is gone, or the SavedModel was written "
         "without its rows; hotrow.export_model and `platform export` keep them",
         handle.c_str());
  }
  return found->second;
}

void drop_table(const std::string& handle) {
  std::lock_guard lock(registry().mutex);
  registry().tables.erase(handle);
}

namespace {

// Tables that several versions share read and cache only rows that all of them may read. The caller
// holds the lock.
void bound_rows(const std::shared_ptr<const ServingTables>& tables) {
  RowVersion newest = ~RowVersion{0}, fence = 0;
  for (const auto& [name, served] : registry().bound) {
    if (served.tables != tables || served.overlay->version == 0) continue;
    newest = std::min(newest, served.overlay->version);
    fence = std::max(fence, served.overlay->fence);
  }
  tables->cache_up_to(newest);
  tables->set_fence(fence);
}

void bind(const std::string& model, int64_t version, Served served) {
  std::lock_guard lock(registry().mutex);
  const auto tables = served.tables;
  if (!registry().bound.emplace(std::make_pair(model, version), std::move(served)).second) {
    fail(Code::kAlreadyExists, "model %s, version %lld is bound already", model.c_str(),
         static_cast<long long>(version));
  }
  registry().ever_bound.emplace(model, version);
  bound_rows(tables);
}

}  // namespace

void bind_serving(const std::string& model, int64_t version, const std::string& manifest_path,
                  const ServingOptions& options) {
  const auto tables = std::make_shared<const ServingTables>(manifest_path, options);
  bind(model, version, {tables, tables->first_overlay()});
}

void share_serving(const std::string& model, int64_t version, const std::string& name) {
  bind(name, version, bound_serving(model, version));
}

namespace {

// Whether an overlay has all cuts of a layer.
bool has_files_of(const Overlay& overlay, const std::shared_ptr<const CutLayer>& layer) {
  const auto& layers = overlay.layers;
  if (std::find(layers.begin(), layers.end(), layer) != layers.end()) return true;
  const auto is_there = [&](const LayerFile& file) {
    return std::any_of(layers.begin(), layers.end(), [&](const auto& other) {
      const auto& files = other->files();
      return std::find(files.begin(), files.end(), file) != files.end();
    });
  };
  return std::all_of(layer->files().begin(), layer->files().end(), is_there);
}

// The overlay after `before`; updates the cache with the rows of layers that are removed.
std::shared_ptr<const Overlay> overlay_after(const Served& before, RowVersion shown,
                                             const std::vector<LayerFile>& layers,
                                             RowVersion fence) {
  auto overlay = std::make_shared<Overlay>();
  overlay->version = shown;
  overlay->fence = fence;
  overlay->layers = before.tables->layers(layers);
  for (const auto& layer : before.overlay->layers) {
    if (!has_files_of(*overlay, layer)) before.tables->folded(*layer);
  }
  return overlay;
}

// An overlay that reads the same rows from fewer layers; null: it has few.
std::shared_ptr<const Overlay> with_merged_layers(const Served& served) {
  std::vector<size_t> rows;
  for (const auto& layer : served.overlay->layers) rows.push_back(layer->rows());
  const MergeRange range = layers_to_merge(rows);
  if (range.first == range.last) return nullptr;
  auto overlay = std::make_shared<Overlay>(*served.overlay);
  auto& layers = overlay->layers;
  const auto first = layers.begin() + static_cast<ptrdiff_t>(range.first);
  const auto last = layers.begin() + static_cast<ptrdiff_t>(range.last);
  *first = served.tables->merge({first, last});
  layers.erase(first + 1, last);
  return overlay;
}

}  // namespace

void show_serving(const std::string& model, int64_t version, RowVersion shown,
                  const std::vector<LayerFile>& layers, RowVersion fence) {
  // The old overlay is freed outside the lock, since every lookup takes the lock to find its
  // tables.
  const Served before = bound_serving(model, version);
  auto last = overlay_after(before, shown, layers, fence);
  if (last->version == before.overlay->version && last->fence == before.overlay->fence &&
      last->layers == before.overlay->layers) {
    before.tables->check_fence_again();
  }
  std::lock_guard lock(registry().mutex);
  const auto found = registry().bound.find(std::make_pair(model, version));
  if (found == registry().bound.end()) return;
  found->second.overlay.swap(last);
  bound_rows(found->second.tables);
}

void merge_layers(const std::string& model, int64_t version) {
  for (;;) {
    const Served before = bound_serving(model, version);
    // Swapped with the old overlay, which is freed outside the lock.
    std::shared_ptr<const Overlay> overlay = with_merged_layers(before);
    if (overlay == nullptr) return;
    std::lock_guard lock(registry().mutex);
    const auto found = registry().bound.find(std::make_pair(model, version));
    if (found == registry().bound.end()) return;
    // Else it shows another cut since.
    if (found->second.overlay == before.overlay) found->second.overlay.swap(overlay);
  }
}

void unbind_serving(const std::string& model, int64_t version) {
  // Freed outside the lock, since every lookup takes the lock to find its tables.
  Served last;
  std::lock_guard lock(registry().mutex);
  const auto found = registry().bound.find(std::make_pair(model, version));
  if (found == registry().bound.end()) return;
  last = std::move(found->second);
  registry().bound.erase(found);
  bound_rows(last.tables);
}

Served find_serving(const std::string& model, int64_t version) {
  std::lock_guard lock(registry().mutex);
  const auto version_key = std::make_pair(model, version);
  auto found = registry().bound.find(version_key);
  if (found != registry().bound.end()) return found->second;
  if (registry().ever_bound.count(version_key) != 0) {
    fail(Code::kUnavailable, "model %s, version %lld is not loaded any more", model.c_str(),
         static_cast<long long>(version));
  }
  return {};
}

Served bound_serving(const std::string& model, int64_t version) {
  Served served = find_serving(model, version);
  if (served.tables == nullptr) {
    fail(Code::kNotFound, "model %s, version %lld is not bound", model.c_str(),
         static_cast<long long>(version));
  }
  return served;
}

std::shared_ptr<const ServingTables> attach_serving(const std::string& manifest_path,
                                                    const ServingOptions& options) {
  const auto [path, facts] = look_at(manifest_path);
  ServingOptions fixed = options;
  fixed.takes_no_cuts = true;
  auto tables = std::make_shared<const ServingTables>(path, fixed);
  std::lock_guard lock(registry().mutex);
  registry().opened[path] =
      Opened{{tables, tables->first_overlay()}, facts.st_dev, facts.st_ino, facts.st_mtim};
  return tables;
}

void detach_serving(const std::string& manifest_path) {
  const std::string path = normal_path(manifest_path);
  std::lock_guard lock(registry().mutex);
  registry().opened.erase(path);
}

void show_attached(const std::string& manifest_path, RowVersion shown,
                   const std::vector<LayerFile>& layers, RowVersion fence) {
  const Served before = attached_serving(manifest_path);
  if (before.tables == nullptr) {
    fail(Code::kNotFound, "manifest %s is not attached", manifest_path.c_str());
  }
  auto last = overlay_after(before, shown, layers, fence);
  while (auto merged = with_merged_layers({before.tables, last})) last = std::move(merged);
  // Since these rows were read, a cut that is in no layer may have been folded.
  before.tables->forget_cached();
  const std::string path = normal_path(manifest_path);
  std::lock_guard lock(registry().mutex);
  const auto found = registry().opened.find(path);
  if (found != registry().opened.end() && found->second.served.tables == before.tables) {
    found->second.served.overlay.swap(last);
    before.tables->cache_up_to(shown);
    before.tables->set_fence(fence);
  }
}

Served attached_serving(const std::string& manifest_path) {
  const auto [path, facts] = look_at(manifest_path);
  std::lock_guard lock(registry().mutex);
  auto found = registry().opened.find(path);
  if (found == registry().opened.end() || !found->second.is(facts)) return {};
  return found->second.served;
}

Served open_serving(const std::string& manifest_path) {
  if (const Served attached = attached_serving(manifest_path); attached.tables != nullptr) {
    return attached;
  }
  // Opened outside the lock: a slow disk must not stop the lookups of other models.
  const auto tables = attach_serving(manifest_path, ServingOptions());
  return {tables, tables->first_overlay()};
}

}  // namespace hotrow

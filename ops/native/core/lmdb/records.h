// Control records of an embedded store (docs/formats.md): texts by name.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/lmdb/environment.h"

namespace hotrow {

class LmdbRecords {
 public:
  // create: creates an absent store; else it fails with NotFound.
  LmdbRecords(const std::string& directory, bool create)
      : env_(LmdbEnvironment::open(directory, create)) {}

  // How long writes of this process to the store wait for others.
  void set_patience(std::chrono::milliseconds patience) { env_->set_patience(patience); }

  std::optional<std::string> get(const std::string& name) const;
  // A record, its expected text and its new text; none: absent.
  struct Change {
    std::string name;
    std::optional<std::string> expected, text;
  };
  // Makes all changes if all records have their expected texts, else none. Returns whether it did.
  bool swap(const std::vector<Change>& changes);
  // Calls visit for each name with the prefix, in order.
  void list(const std::string& prefix, const std::function<void(const std::string&)>& visit) const;
  // 1 more than the previous call, in any process, returned.
  uint64_t next_number();

 private:
  std::shared_ptr<LmdbEnvironment> env_;
};

}  // namespace hotrow

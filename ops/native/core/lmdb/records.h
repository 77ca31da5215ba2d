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
  // create: make the store when there is none; else it fails with NotFound.
  LmdbRecords(const std::string& directory, bool create)
      : env_(LmdbEnvironment::open(directory, create)) {}

  std::optional<std::string> get(const std::string& name) const;
  // A record, the text that it should have, and the new one; none: absent.
  struct Change {
    std::string name;
    std::optional<std::string> expected, text;
  };
  // Makes all changes if all records are as expected. Returns whether they were.
  bool swap(const std::vector<Change>& changes);
  // Calls visit for each name with the prefix, in order.
  void list(const std::string& prefix, const std::function<void(const std::string&)>& visit) const;
  // 1 more than the call before, of any process.
  uint64_t next_number();

 private:
  std::shared_ptr<LmdbEnvironment> env_;
};

}  // namespace hotrow

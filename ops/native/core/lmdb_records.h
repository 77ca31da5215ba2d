// Control records of an embedded store (docs/formats.md): texts by name.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/lmdb_environment.h"

namespace hotrow {

class LmdbRecords {
 public:
  // create: make the store when there is none; else it fails with NotFound.
  LmdbRecords(const std::string& directory, bool create)
      : env_(LmdbEnvironment::open(directory, create)) {}

  std::optional<std::string> get(const std::string& name) const;
  // Writes `text`, or removes the record if it is empty, when the record is as expected. Returns
  // whether it was.
  bool swap(const std::string& name, const std::optional<std::string>& expected,
            const std::optional<std::string>& text);
  // Calls visit for each name with the prefix, in order.
  void list(const std::string& prefix, const std::function<void(const std::string&)>& visit) const;
  // 1 more than the call before, of any process.
  uint64_t next_number();

 private:
  std::shared_ptr<LmdbEnvironment> env_;
};

}  // namespace hotrow

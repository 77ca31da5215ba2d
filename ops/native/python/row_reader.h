// The Python interface that all readers of stored rows share.
#pragma once

#include "core/abi/store.h"
#include "python/binding.h"

class RowReader {
 public:
  // [(name, dim, row type, row bytes, default value, rows)].
  nb::list tables() const;
  // requests: [(table, keys)]. Returns ([(rows, versions, states)], failure code, message).
  nb::object read(nb::list requests, double timeout_seconds) const;
  void close() { reader_.reset(); }
  // Fails with ValueError when the reader is closed.
  std::shared_ptr<hr_reader> open() const;
  // Fails with IndexError.
  hr_stored_table shape(size_t table) const;

 protected:
  void take(hr_reader* raw) { reader_.reset(raw, hr_reader_close); }

 private:
  std::shared_ptr<hr_reader> reader_;
};

void bind_row_reader(nb::module_& m);

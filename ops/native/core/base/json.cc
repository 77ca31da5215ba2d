#include "core/base/json.h"

#include <nlohmann/json.hpp>

namespace hotrow {
namespace {

using Library = nlohmann::json;

std::string as_text(const Library& value) {
  return value.dump(-1, ' ', true, Library::error_handler_t::replace);
}

// Returns what `read` returns; turns the library's exceptions into DataLoss.
template <class Read>
auto reading(const Read& read) -> decltype(read()) {
  try {
    return read();
  } catch (const Library::exception& error) {
    fail(Code::kDataLoss, "%s", error.what());
  }
}

}  // namespace

struct Json::Value {
  std::shared_ptr<const Library> whole;
  const Library* part;
};

Json Json::parse(const std::string& text) {
  const auto whole = reading([&] { return std::make_shared<const Library>(Library::parse(text)); });
  return Json(std::make_shared<Value>(Value{whole, whole.get()}));
}

bool Json::has(const char* name) const { return value_->part->contains(name); }

Json Json::at(const char* name) const {
  const Library* part = reading([&] { return &value_->part->at(name); });
  return Json(std::make_shared<Value>(Value{value_->whole, part}));
}

std::vector<Json> Json::items() const {
  if (!value_->part->is_array()) {
    fail(Code::kDataLoss, "type must be array, but is %s", value_->part->type_name());
  }
  std::vector<Json> items;
  items.reserve(value_->part->size());
  for (const Library& item : *value_->part) {
    items.push_back(Json(std::make_shared<Value>(Value{value_->whole, &item})));
  }
  return items;
}

bool Json::boolean() const {
  return reading([&] { return value_->part->get<bool>(); });
}
double Json::number() const {
  return reading([&] { return value_->part->get<double>(); });
}
std::string Json::text() const {
  return reading([&] { return value_->part->get<std::string>(); });
}
std::string Json::written() const { return as_text(*value_->part); }

uint64_t Json::whole(uint64_t least, uint64_t most) const {
  const Library& value = *value_->part;
  if (!value.is_number_unsigned() || value.get<uint64_t>() < least ||
      value.get<uint64_t>() > most) {
    fail(Code::kDataLoss, "%s; legal are whole numbers from %llu to %llu", as_text(value).c_str(),
         static_cast<unsigned long long>(least), static_cast<unsigned long long>(most));
  }
  return value.get<uint64_t>();
}

uint64_t Json::whole(const char* name, uint64_t least, uint64_t most) const {
  const Json value = at(name);
  try {
    return value.whole(least, most);
  } catch (const Error& error) {
    fail(Code::kDataLoss, "%s is %s", name, error.what());
  }
}

struct JsonObject::Value {
  Library object = Library::object();
};

JsonObject::JsonObject() : value_(std::make_unique<Value>()) {}
JsonObject::~JsonObject() = default;
JsonObject::JsonObject(JsonObject&&) noexcept = default;

JsonObject& JsonObject::set(const std::string& name, uint64_t value) {
  value_->object[name] = value;
  return *this;
}
JsonObject& JsonObject::set(const std::string& name, const std::string& value) {
  value_->object[name] = value;
  return *this;
}
JsonObject& JsonObject::set(const std::string& name, const std::vector<uint64_t>& values) {
  value_->object[name] = values;
  return *this;
}
JsonObject& JsonObject::set(const std::string& name, const JsonObject& value) {
  value_->object[name] = value.value_->object;
  return *this;
}
std::string JsonObject::written() const { return as_text(value_->object); }

}  // namespace hotrow

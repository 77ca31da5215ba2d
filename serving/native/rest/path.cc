#include "rest/path.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/refused.h"
#include "base/utf8.h"

namespace hotrow_server {
namespace {

using Kind = RestPath::Kind;

constexpr std::string_view kModels = "/v1/models";

constexpr std::pair<std::string_view, Kind> kMethods[] = {
    {":predict", Kind::kPredict}, {":classify", Kind::kClassify}, {":regress", Kind::kRegress}};

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

// `word`: in lower case.
bool begins_with(std::string_view text, std::string_view word) {
  return text.size() >= word.size() &&
         std::equal(word.begin(), word.end(), text.begin(),
                    [](char wanted, char letter) { return wanted == lower(letter); });
}

bool is(std::string_view text, std::string_view word) {
  return text.size() == word.size() && begins_with(text, word);
}

bool take(std::string_view word, std::string_view* text) {
  if (!begins_with(*text, word)) return false;
  text->remove_prefix(word.size());
  return true;
}

// The bytes up to the next of `ends`.
std::string_view take_until(std::string_view ends, std::string_view* text) {
  const std::string_view taken = text->substr(0, text->find_first_of(ends));
  text->remove_prefix(taken.size());
  return taken;
}

std::string_view take_digits(std::string_view* text) {
  const std::string_view taken = text->substr(0, text->find_first_not_of("0123456789"));
  text->remove_prefix(taken.size());
  return taken;
}

int64_t version_of(std::string_view digits) {
  int64_t version = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), version).ec != std::errc()) {
    refuse("Failed to convert version: " + std::string(digits) + " to numeric.");
  }
  return version;
}

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  digit = lower(digit);
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

// A "%" without two hexadecimal digits stands for itself.
std::string percent_decoded(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool is_code = text[at] == '%' && text.size() - at > 2 && hex_value(text[at + 1]) >= 0 &&
                         hex_value(text[at + 2]) >= 0;
    if (is_code) {
      bytes += static_cast<char>(hex_value(text[at + 1]) << 4 | hex_value(text[at + 2]));
      at += 2;
    } else {
      bytes += text[at];
    }
  }
  return as_utf8(std::move(bytes));
}

// A model as the path names it.
struct Named {
  std::string_view name, version, label;  // empty: not given
};

// NAME, NAME/versions/N or NAME/labels/LABEL. False: the text begins with none.
bool take_model(std::string_view* text, Named* model) {
  model->name = take_until("/:", text);
  if (model->name.empty()) return false;
  std::string_view rest = *text;
  if (take("/versions/", &rest)) {
    model->version = take_digits(&rest);
    if (!model->version.empty()) *text = rest;
  } else if (take("/labels/", &rest)) {
    model->label = take_until("/:", &rest);
    if (!model->label.empty()) *text = rest;
  }
  return true;
}

// What is asked for a model. False: it is not known.
bool read_kind(std::string_view verb, std::string_view rest, Kind* kind) {
  if (verb == "POST") {
    for (const auto& [method, of_method] : kMethods) {
      if (!is(rest, method)) continue;
      *kind = of_method;
      return true;
    }
    return false;
  }
  if (verb != "GET") return false;
  *kind = rest.empty() ? Kind::kStatus : Kind::kMetadata;
  return rest.empty() || is(rest, "/metadata");
}

}  // namespace

RestPath read_path(std::string_view verb, std::string_view target) {
  RestPath path;
  std::string_view rest = target;
  if (verb == "GET" && is(target, kModels)) return path;
  Named model;
  if (!take(kModels, &rest) || !take("/", &rest) || !take_model(&rest, &model) ||
      !read_kind(verb, rest, &path.kind)) {
    refuse("Malformed request: " + std::string(verb) + " " + std::string(target));
  }
  path.spec.set_name(percent_decoded(model.name));
  if (!model.version.empty()) {
    path.spec.mutable_version()->set_value(version_of(model.version));
  } else if (!model.label.empty()) {
    path.spec.set_version_label(percent_decoded(model.label));
  }
  return path;
}

}  // namespace hotrow_server

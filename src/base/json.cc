#include "base/json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/utf8.h"

namespace loom::json {

namespace {

// Receives nlohmann's parse events and builds the value on a stack of open containers.
class Builder {
 public:
  Builder(const Limits& limits) : limits_(limits) {}

  bool null() { return Put(nullptr); }
  bool boolean(bool v) { return Put(v); }
  bool number_integer(std::int64_t v) { return Put(v); }
  bool number_unsigned(std::uint64_t v) { return Put(v); }
  bool number_float(double v, const std::string&) {
    if (!std::isfinite(v)) return Stop(Fault::kSyntax, "a number is out of range");
    return Put(v);
  }
  bool string(std::string& v) { return Put(std::move(v)); }
  template <class Binary>
  bool binary(Binary&) {
    return Stop(Fault::kSyntax, "binary value");
  }
  bool start_object(std::size_t) { return Open(Object{}); }
  bool start_array(std::size_t) { return Open(Array{}); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    Level& level = open_.back();
    if (!level.keys.insert(name).second) {
      return Stop(Fault::kDuplicateKey, fmt::format("duplicate key '{}'", name.substr(0, 100)));
    }
    level.key = std::move(name);
    return true;
  }
  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    return Stop(Fault::kSyntax, fmt::format("invalid JSON at byte {}", position));
  }

  Fault fault = Fault::kNone;
  std::string message;
  Value root;

 private:
  struct Level {
    Value value;
    std::string key;
    std::unordered_set<std::string> keys;
  };

  bool Stop(Fault why, std::string what) {
    if (fault == Fault::kNone) {
      fault = why;
      message = std::move(what);
    }
    return false;
  }

  bool Put(Value value) {
    if (++count_ > limits_.max_values) {
      return Stop(Fault::kTooMany, fmt::format("more than {} values", limits_.max_values));
    }
    Attach(std::move(value));
    return true;
  }

  void Attach(Value value) {
    if (open_.empty()) {
      root = std::move(value);
    } else if (auto* array = std::get_if<Array>(&open_.back().value.data)) {
      array->push_back(std::move(value));
    } else {
      std::get<Object>(open_.back().value.data)
          .emplace_back(std::move(open_.back().key), std::move(value));
    }
  }

  bool Open(Value container) {
    if (++count_ > limits_.max_values) {
      return Stop(Fault::kTooMany, fmt::format("more than {} values", limits_.max_values));
    }
    if (open_.size() >= limits_.max_depth) {
      return Stop(Fault::kTooDeep, fmt::format("nested deeper than {}", limits_.max_depth));
    }
    open_.push_back({std::move(container), {}, {}});
    return true;
  }

  bool Close() {
    Value done = std::move(open_.back().value);
    open_.pop_back();
    Attach(std::move(done));
    return true;
  }

  const Limits& limits_;
  std::vector<Level> open_;
  std::size_t count_ = 0;
};

void DumpString(std::string_view raw, std::string& out) {
  const bool valid = FindInvalidUtf8(raw) == std::string_view::npos;
  const std::string repaired = valid ? std::string() : ReplaceInvalidUtf8(raw);
  out.push_back('"');
  for (const char c : valid ? raw : std::string_view(repaired)) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out.push_back(c);
        }
    }
  }
  out.push_back('"');
}

void DumpTo(const Value& value, int indent, int depth, std::string& out) {
  const auto new_line = [&](int level) {
    if (indent < 0) return;
    out.push_back('\n');
    out.append(static_cast<std::size_t>(indent) * static_cast<std::size_t>(level), ' ');
  };
  const auto list = [&](const auto& items, char open, char close, auto&& item) {
    out.push_back(open);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += indent < 0 ? ", " : ",";
      new_line(depth + 1);
      item(items[i]);
    }
    if (!items.empty()) new_line(depth);
    out.push_back(close);
  };
  if (value.IsNull()) {
    out += "null";
  } else if (const bool* b = value.AsBool()) {
    out += *b ? "true" : "false";
  } else if (const auto* i = std::get_if<std::int64_t>(&value.data)) {
    out += fmt::format("{}", *i);
  } else if (const auto* u = value.AsUnsigned()) {
    out += fmt::format("{}", *u);
  } else if (const auto* d = std::get_if<double>(&value.data)) {
    std::string number = std::isfinite(*d) ? fmt::format("{}", *d) : "null";
    // Keep it a JSON number with a fraction, so that it does not read back as an integer.
    if (number.find_first_of(".enu") == std::string::npos) number += ".0";
    out += number;
  } else if (const auto* s = value.AsString()) {
    DumpString(*s, out);
  } else if (const auto* array = value.AsArray()) {
    list(*array, '[', ']', [&](const Value& v) { DumpTo(v, indent, depth + 1, out); });
  } else if (const auto* object = value.AsObject()) {
    list(*object, '{', '}', [&](const Member& m) {
      DumpString(m.first, out);
      out += ": ";
      DumpTo(m.second, indent, depth + 1, out);
    });
  }
}

}  // namespace

bool Value::AsNumber(double& out) const {
  if (const auto* i = std::get_if<std::int64_t>(&data)) {
    out = static_cast<double>(*i);
  } else if (const auto* u = std::get_if<std::uint64_t>(&data)) {
    out = static_cast<double>(*u);
  } else if (const auto* d = std::get_if<double>(&data)) {
    out = *d;
  } else {
    return false;
  }
  return true;
}

const Value* Value::Find(std::string_view key) const {
  const Object* object = AsObject();
  if (object == nullptr) return nullptr;
  for (const Member& member : *object) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

std::string_view Value::KindName() const {
  static constexpr std::string_view kNames[] = {"null",   "bool",   "integer", "integer",
                                                "number", "string", "array",   "object"};
  return kNames[data.index()];
}

Result<Value> Parse(std::string_view text, const Limits& limits, Fault* fault) {
  const auto refuse = [&](Fault why, std::string message) {
    if (fault != nullptr) *fault = why;
    return MakeError(why == Fault::kTooLarge || why == Fault::kTooDeep || why == Fault::kTooMany
                         ? Code::kLimit
                         : Code::kInvalid,
                     std::move(message));
  };
  if (fault != nullptr) *fault = Fault::kNone;
  if (text.size() > limits.max_bytes) {
    return refuse(Fault::kTooLarge, fmt::format("JSON of {} bytes is over the limit of {}",
                                                text.size(), limits.max_bytes));
  }
  if (const std::size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return refuse(Fault::kInvalidUtf8, fmt::format("invalid UTF-8 at byte {}", bad));
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    return refuse(Fault::kSyntax, "invalid JSON at byte 0: a byte order mark");
  }
  Builder builder(limits);
  try {
    nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const std::exception& e) {
    return refuse(Fault::kSyntax, fmt::format("invalid JSON: {}", e.what()));
  }
  if (builder.fault != Fault::kNone) return refuse(builder.fault, std::move(builder.message));
  return std::move(builder.root);
}

std::string Dump(const Value& value, int indent) {
  std::string out;
  DumpTo(value, indent, 0, out);
  return out;
}

}  // namespace loom::json

#include "store/manifest.h"

#include <algorithm>

#include "base/json.h"
#include "crypto/hash.h"

namespace loom::store {
namespace {

json::Object ToObject(const Manifest& manifest) {
  json::Array files;
  for (const ManifestFile& file : manifest.files) {
    files.push_back(
        json::Object{{"name", file.name}, {"size", file.size}, {"sha256", file.sha256.Hex()}});
  }
  return json::Object{{"schema", kManifestSchema},       {"round", manifest.round},
                      {"record", manifest.record.Hex()}, {"root", manifest.root.Hex()},
                      {"grid", manifest.grid.Hex()},     {"files", std::move(files)}};
}

bool IsFileName(std::string_view name) {
  if (name == "state.bin" || name == "leaves.bin") return true;
  if (!name.starts_with("extra/") || !name.ends_with(".bin")) return false;
  return name.size() > 10 && IsExtraName(name.substr(6, name.size() - 10));
}

Error Bad(std::string_view what) {
  return MakeError(Code::kCorrupt, fmt::format("manifest: {}", what));
}

Result<std::uint64_t> GetUnsigned(const json::Value& object, std::string_view key) {
  const json::Value* value = object.Find(key);
  const std::uint64_t* number = value == nullptr ? nullptr : value->AsUnsigned();
  if (number == nullptr) return Bad(fmt::format("'{}' is not a count", key));
  return *number;
}

Result<Hash> GetHash(const json::Value& object, std::string_view key) {
  const json::Value* value = object.Find(key);
  const std::string* text = value == nullptr ? nullptr : value->AsString();
  if (text == nullptr) return Bad(fmt::format("'{}' is not a hash", key));
  auto hash = Hash::FromHex(*text);
  if (!hash) return Bad(fmt::format("'{}': {}", key, hash.error().message));
  return hash;
}

}  // namespace

const ManifestFile* Manifest::Find(std::string_view name) const {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const ManifestFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

bool IsExtraName(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string ToJson(const Manifest& manifest) {
  json::Object object = ToObject(manifest);
  const Hash check = crypto::Sha256(AsBytes(json::Dump(json::Value(object), 1)));
  object.emplace_back("check", check.Hex());
  return json::Dump(json::Value(std::move(object)), 1) + "\n";
}

Result<Manifest> FromJson(std::string_view text) {
  auto parsed = json::Parse(
      text, {.max_bytes = kMaxManifestBytes, .max_depth = 4, .max_values = 8 * kMaxManifestFiles});
  if (!parsed) return Bad(parsed.error().message);
  const json::Value& root = *parsed;
  LOOM_ASSIGN(const std::uint64_t schema, GetUnsigned(root, "schema"));
  if (schema != kManifestSchema) {
    return MakeError(Code::kInvalid, fmt::format("manifest: schema {}, this program reads {}",
                                                 schema, kManifestSchema));
  }
  Manifest manifest;
  LOOM_ASSIGN(manifest.round, GetUnsigned(root, "round"));
  LOOM_ASSIGN(manifest.record, GetHash(root, "record"));
  LOOM_ASSIGN(manifest.root, GetHash(root, "root"));
  LOOM_ASSIGN(manifest.grid, GetHash(root, "grid"));
  const json::Value* files = root.Find("files");
  const json::Array* rows = files == nullptr ? nullptr : files->AsArray();
  if (rows == nullptr || rows->size() > kMaxManifestFiles) return Bad("'files' is no list");
  for (const json::Value& row : *rows) {
    const json::Value* name = row.Find("name");
    const std::string* text_name = name == nullptr ? nullptr : name->AsString();
    if (text_name == nullptr || !IsFileName(*text_name) || manifest.Find(*text_name) != nullptr) {
      return Bad("a file has no name, a strange one or one that is there twice");
    }
    ManifestFile file{*text_name, 0, {}};
    LOOM_ASSIGN(file.size, GetUnsigned(row, "size"));
    LOOM_ASSIGN(file.sha256, GetHash(row, "sha256"));
    manifest.files.push_back(std::move(file));
  }
  if (ToJson(manifest) != text) return Bad("its text or its check is damaged");
  return manifest;
}

}  // namespace loom::store

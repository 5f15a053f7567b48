// A log of votes or records as it may lie on a disk: reading never crashes, and opening for append
// leaves a log that reads cleanly and takes a new entry.
#include "store/append_log.h"

#include "fuzz/fuzz.h"
#include "store/sim_file_system.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  store::SimFileSystem disk;
  const Hash file_id{};
  constexpr const char* kPath = "/log";
  {
    auto file = disk.Open(kPath, store::OpenMode::kCreate);
    fuzz::Expect(file.ok(), "the file can be made");
    fuzz::Expect(file.value()->Append(fuzz::View(data, size)).ok(), "the file can be written");
  }
  const auto read = store::ReadLog(disk, kPath, file_id);
  auto log = store::AppendLog::Open(disk, kPath, file_id);
  if (!log.ok()) {
    fuzz::ExpectGoodError(log.error());
    return 0;
  }
  fuzz::Expect(read.ok(), "a log that can be opened can be read");
  fuzz::Expect(log.value().size() == read.value().entries.size(), "both see the same entries");
  fuzz::Expect(log.value().AppendAndSync(AsBytes("entry")).ok(), "an opened log takes an entry");
  const auto after = store::ReadLog(disk, kPath, file_id);
  fuzz::Expect(after.ok() && !after.value().torn, "after that it reads cleanly");
  fuzz::Expect(after.value().entries.size() == read.value().entries.size() + 1, "and has one more");
  fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  store::SimFileSystem disk;
  auto log = store::AppendLog::Open(disk, "/log", {});
  for (const std::string_view entry : {"first", "", "a third entry, longer than the others"})
    Expect(log.value().AppendAndSync(AsBytes(entry)).ok(), "a seed can be written");
  const Bytes bytes = store::ReadWholeFile(disk, "/log", 1 << 20).value();
  seeds.Add("three", bytes);
  seeds.Add("torn", ByteView(bytes).first(bytes.size() - 3));
  seeds.Add("empty", ByteView(bytes).first(store::kLogHeaderBytes));
}

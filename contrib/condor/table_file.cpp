/* The table's file: looked at once a second, read when it is another one. */
#include "slots.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>

#include "../common/rtsched_file.h"
#include "filter.h"

namespace rtsched {

namespace {

constexpr off_t LONGEST = 64 << 20; /* bytes */

/* An open file. */
struct Descriptor {
	int number;

	explicit Descriptor(const char *path)
		/* A pipe must not be waited for. */
		: number(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK))
	{
	}
	~Descriptor()
	{
		if (number >= 0)
			close(number);
	}
	Descriptor(const Descriptor &) = delete;
	Descriptor &operator=(const Descriptor &) = delete;
};

/* Read a file that the daemon wrote; what is wrong goes to `wrong`. */
bool read_file(const struct rtsched_settings &settings, std::string &text, std::string &wrong)
{
	Descriptor file(settings.table);
	struct stat found;
	size_t length = 0;
	ssize_t got;

	if (file.number < 0 || fstat(file.number, &found)) {
		wrong = strerror(errno);
		return false;
	}
	if (!S_ISREG(found.st_mode) || found.st_size > LONGEST) {
		wrong = "it is not a regular file, or larger than 64 MiB";
		return false;
	}
	if (found.st_uid != 0 && found.st_uid != settings.daemon_uid) {
		wrong = "it belongs neither to daemon_user nor to root";
		return false;
	}
	text.resize(static_cast<size_t>(found.st_size));
	while (length < text.size() &&
	       (got = read(file.number, text.data() + length, text.size() - length)) > 0)
		length += static_cast<size_t>(got);
	text.resize(length);
	return true;
}

class TableFile {
      public:
	/* Return the table; null if there is none that holds now. */
	std::shared_ptr<const Table> current()
	{
		int64_t now = rtsched_now_ms(), expected = look_at.load(std::memory_order_relaxed);

		/* One of the threads that get here looks; the others take what there is. */
		if (now >= expected && look_at.compare_exchange_strong(expected, now + 1000))
			look();
		std::lock_guard<std::mutex> held(lock);
		return table && holds(*table) ? table : nullptr;
	}

      private:
	static bool holds(const Table &table)
	{
		int64_t age = time(nullptr) - table.written;

		return age <= table.valid && age >= -table.valid;
	}

	void look()
	{
		const struct rtsched_settings settings = rtsched_filter_settings(&filter);
		struct stat found = {};

		if (stat(settings.table, &found))
			found = {}; /* there is none, as on machines without the daemon */
		if (rtsched_is_unchanged(&seen, &found))
			return;
		seen = found;
		std::shared_ptr<const Table> fresh = found.st_ino ? load(settings) : nullptr;
		std::lock_guard<std::mutex> held(lock);
		table = std::move(fresh);
	}

	static std::shared_ptr<const Table> load(const struct rtsched_settings &settings)
	{
		std::string text, wrong;
		std::optional<Table> made;

		if (read_file(settings, text, wrong))
			made = read_table(text, wrong);
		if (made)
			return std::make_shared<const Table>(std::move(*made));
		std::string line = std::string("rtsched: ") + settings.table + ": " + wrong +
				   "; no slot is reserved and all delays are equal";
		filter.log(true, line.c_str());
		return nullptr;
	}

	std::atomic<int64_t> look_at = 0; /* ms */
	struct stat seen = {};		  /* touched by whoever looks; a second lies between */
	std::mutex lock;
	std::shared_ptr<const Table> table;
};

TableFile file;

} // namespace

double delay_of(std::string_view slot, double otherwise)
{
	std::shared_ptr<const Table> table = file.current();

	if (!table)
		return otherwise;
	auto found = table->slots.find(slot);
	return found == table->slots.end() ? otherwise : found->second.delay;
}

namespace {

/* Return what the last of some steps names that begins before `end`. */
Amounts before(const std::vector<Step> &kept, double end)
{
	auto after = std::partition_point(kept.begin(), kept.end(), [end](const Step &step) {
		return static_cast<double>(step.start) < end;
	});
	return after == kept.begin() ? Amounts{} : std::prev(after)->amounts;
}

} // namespace

Amounts kept_before(std::string_view slot, double end)
{
	std::shared_ptr<const Table> table = file.current();

	if (!table)
		return {};
	auto found = table->slots.find(slot);
	return found == table->slots.end() ? Amounts{} : before(found->second.kept, end);
}

Amounts lacks_before(std::string_view slot, double end)
{
	std::shared_ptr<const Table> table = file.current();
	std::string again(slot);

	if (!table)
		return {};
	again.insert(std::min(again.find('@'), again.size()), "_");
	auto found = table->slots.find(again);
	if (found == table->slots.end()) /* a daemon of an earlier release says nothing of that */
		found = table->slots.find(slot);
	return found == table->slots.end() ? Amounts{} : before(found->second.kept, end);
}

} // namespace rtsched

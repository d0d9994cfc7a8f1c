/*
 * A program that is the head of a volume: writes blocks that say which version they are, and looks whether they are there.
 *
 *   libcairn load URI FILE SECONDS    writes for so long, with notes in FILE that outlive this process; 0: no error
 *                                     3: the volume was lost, and from then on each request was refused with ESTALE
 *   libcairn verify URI FILE SECONDS  each block is as the notes allow, and so long later still the same
 *   libcairn poll URI                 the descriptor, the calls that wait, zeroes and discards
 *   libcairn threads URI              each way to wait, alone and on four threads at a time
 */
#include <cairn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define BLOCKS 4096
#define DEPTH 32

struct note {
	uint64_t issued, acknowledged;
};

static struct note *notes;
static struct cairn_volume *volume;
static struct cairn_queue *queue;

static _Noreturn void fail(const char *what, long long number, const char *why)
{
	fprintf(stderr, "%s %lld: %s\n", what, number, why);
	exit(1);
}

static double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void stamp(uint64_t *block, uint64_t place, uint64_t version)
{
	for (int i = 0; i < BLOCK / 8; i++)
		block[i] = (place << 32 | version) * 0x9e3779b97f4a7c15 + (version ? i : 0);
	if (!version)
		memset(block, 0, BLOCK);
	else
		block[0] = version, block[1] = place;
}

/* The version that a block is of, if it is whole. */
static uint64_t version_of(const uint64_t *block, uint64_t place)
{
	uint64_t expected[BLOCK / 8], version = block[0];
	stamp(expected, place, version);
	if (memcmp(block, expected, BLOCK))
		fail("block", place, "is torn, or another's");
	return version;
}

static void open_all(const char *uri, const char *file)
{
	volume = cairn_open_uri(uri);
	if (!volume)
		fail("cairn_open_uri", 0, cairn_error());
	if (cairn_size(volume) < (uint64_t)BLOCK * BLOCKS)
		fail("size", cairn_size(volume), "is too small");
	queue = cairn_queue_begin(volume, DEPTH);
	if (!queue)
		fail("cairn_queue_begin", 0, cairn_error());
	if (file) {
		int fd = open(file, O_RDWR | O_CREAT, 0600);
		size_t bytes = BLOCKS * sizeof(*notes);
		if (fd < 0 || ftruncate(fd, bytes))
			fail(file, errno, strerror(errno));
		notes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (notes == MAP_FAILED)
			fail(file, errno, strerror(errno));
	}
}

static void close_all(void)
{
	cairn_queue_end(queue);
	if (cairn_close(volume))
		fail("cairn_close", 0, cairn_error());
}

/* It was lost once: whatever is asked from now on is refused. */
static int is_lost(void)
{
	static char block[BLOCK];
	struct cairn_completion left[DEPTH];
	while (cairn_wait(queue, left, 1, DEPTH, 30000) > 0)
		;
	for (int i = 0; i < 100; i++) {
		uint64_t at = (uint64_t)BLOCK * (rand() % BLOCKS);
		memset(block, 0xee, BLOCK);
		int written = cairn_write(queue, at, BLOCK, block), read = cairn_read(queue, at, BLOCK, block);
		if (written != -ESTALE || read != -ESTALE)
			fail("a request after the loss was answered with", written ? written : read, "ESTALE is due");
	}
	printf("lost: 200 requests after that were refused\n");
	return 3;
}

static int load(double for_seconds)
{
	static uint64_t blocks[DEPTH][BLOCK / 8];
	struct { uint64_t place, version; } under_way[DEPTH];
	char is_busy[BLOCKS] = {0};
	int free_slots[DEPTH], frees = 0, lost = 0;
	unsigned long long done = 0;
	double end = seconds() + for_seconds;
	for (int i = 0; i < DEPTH; i++)
		free_slots[frees++] = i;
	printf("writing\n");
	fflush(stdout);
	while (!lost && (seconds() < end || frees < DEPTH)) {
		while (frees && seconds() < end) {
			uint64_t place = rand() % BLOCKS;
			if (is_busy[place])
				continue;
			int slot = free_slots[--frees];
			is_busy[place] = 1;
			under_way[slot].place = place;
			under_way[slot].version = ++notes[place].issued;
			stamp(blocks[slot], place, under_way[slot].version);
			int error = cairn_submit(queue, CAIRN_WRITE, place * BLOCK, BLOCK, blocks[slot], slot);
			if (error)
				fail("cairn_submit", error, strerror(-error));
		}
		cairn_kick(queue);
		struct cairn_completion completions[DEPTH];
		int count = cairn_wait(queue, completions, 1, DEPTH, 60000);
		/* Who was paused has waited for long, and was told nothing yet. */
		if (count == 0)
			count = cairn_wait(queue, completions, 1, DEPTH, 60000);
		if (count <= 0)
			fail("cairn_wait", count, "nothing is completed in 60 s");
		for (int i = 0; i < count; i++) {
			int slot = completions[i].tag;
			uint64_t place = under_way[slot].place;
			if (completions[i].result == -ESTALE)
				lost = 1;
			else if (completions[i].result)
				fail("a write is completed with", completions[i].result, strerror(-completions[i].result));
			else
				notes[place].acknowledged = under_way[slot].version, done++;
			is_busy[place] = 0;
			free_slots[frees++] = slot;
		}
	}
	if (lost)
		return is_lost();
	close_all();
	printf("%llu writes\n", done);
	return done ? 0 : 1;
}

static uint64_t read_version(uint64_t place)
{
	uint64_t block[BLOCK / 8];
	int error = cairn_read(queue, place * BLOCK, BLOCK, block);
	if (error)
		fail("cairn_read", error, strerror(-error));
	return version_of(block, place);
}

static int verify(unsigned later)
{
	static uint64_t first[BLOCKS];
	unsigned long long written = 0;
	for (uint64_t place = 0; place < BLOCKS; place++) {
		first[place] = read_version(place);
		if (first[place] < notes[place].acknowledged)
			fail("block", place, "has lost what was acknowledged");
		if (first[place] > notes[place].issued)
			fail("block", place, "is newer than anything that was written");
		written += first[place] > 0;
	}
	sleep(later);
	for (uint64_t place = 0; place < BLOCKS; place++)
		if (read_version(place) != first[place])
			fail("block", place, "has changed since it was read");
	/* What is not known to be done is not done later. */
	for (uint64_t place = 0; place < BLOCKS; place++)
		notes[place].issued = notes[place].acknowledged = first[place];
	close_all();
	printf("%llu blocks are as they were acknowledged\n", written);
	return written ? 0 : 1;
}

static int polled(void)
{
	static char block[4 * BLOCK], back[4 * BLOCK], zeroes[4 * BLOCK];
	uint64_t at = cairn_size(volume) - sizeof(block);
	struct cairn_completion completion;
	struct pollfd fd = {.fd = cairn_fd(queue), .events = POLLIN};
	memset(block, 0x5a, sizeof(block));
	if (cairn_submit(queue, CAIRN_WRITE, at, sizeof(block), block, 77))
		fail("cairn_submit", 0, "refused");
	cairn_kick(queue);
	while (cairn_poll(queue, &completion, 1) == 0)
		if (cairn_arm(queue) == 1 && poll(&fd, 1, 10000) != 1)
			fail("the descriptor", fd.fd, "is not readable in 10 s");
	if (completion.tag != 77 || completion.result)
		fail("the write", completion.result, "is not done");
	if (cairn_read(queue, at, sizeof(back), back) || memcmp(block, back, sizeof(back)))
		fail("the read", 0, "is not what was written");
	/* Parts of blocks, too. */
	if (cairn_write_zeroes(queue, at + 512, 1024) || cairn_read(queue, at, sizeof(back), back) ||
	    memcmp(back + 512, zeroes, 1024) || back[511] != 0x5a || back[1536] != 0x5a)
		fail("zeroes", 0, "are not as they were asked for");
	if (cairn_discard(queue, at, sizeof(back)) || cairn_flush(queue) || cairn_read(queue, at, sizeof(back), back) ||
	    memcmp(back, zeroes, sizeof(back)))
		fail("a discard", 0, "left something");
	if (cairn_read(queue, cairn_size(volume), BLOCK, back) != -EINVAL)
		fail("a read behind the end", 0, "is not refused");
	if (cairn_read(NULL, 0, BLOCK, back) != -EINVAL || cairn_submit(queue, 9, 0, BLOCK, back, 0) != -EINVAL ||
	    cairn_open_uri("cairn:") || !strstr(cairn_error(), "cairn:VOLUME"))
		fail("nonsense", 0, "is not refused");
	close_all();
	printf("all of it works\n");
	return 0;
}

enum { TOGETHER = 8, ROUNDS = 40 };

/* How a thread hears of what is done. */
enum way { WAITS, SPINS, BY_DESCRIPTOR, COMES_BACK, WAYS };
static const char *const names[WAYS] = {"cairn_wait", "cairn_poll", "cairn_arm", "cairn_poll now and then"};

static int next_of(struct cairn_queue *its, enum way way, struct cairn_completion *completions, int max)
{
	struct pollfd fd = {.fd = cairn_fd(its), .events = POLLIN};
	int found = 0;
	for (double end = seconds() + 30; !found && seconds() < end;) {
		if (way == COMES_BACK)
			usleep(3000);
		found = way == WAITS ? cairn_wait(its, completions, 1, max, 30000) : cairn_poll(its, completions, max);
		if (!found && way == BY_DESCRIPTOR && cairn_arm(its) == 1 && poll(&fd, 1, 30000) != 1)
			break;
	}
	return found;
}

/* Writes its own blocks some at a time, kicked one by one, and reads them back. */
static void *works(void *argument)
{
	enum way way = (enum way)(intptr_t)argument;
	struct cairn_queue *its = cairn_queue_begin(volume, TOGETHER);
	struct cairn_completion completions[TOGETHER];
	uint64_t *blocks = aligned_alloc(BLOCK, TOGETHER * BLOCK);
	if (!its || !blocks)
		fail(names[way], 0, "there is no queue");
	for (int round = 0; round < 2 * ROUNDS; round++) {
		int writes = round % 2 == 0;
		for (int i = 0; i < TOGETHER; i++) {
			uint64_t *block = blocks + i * BLOCK / 8, place = way * TOGETHER + i;
			if (writes)
				stamp(block, place, round + 1);
			else
				memset(block, 0, BLOCK);
			if (cairn_submit(its, writes ? CAIRN_WRITE : CAIRN_READ, place * BLOCK, BLOCK, block, i))
				fail(names[way], round, "is refused");
			cairn_kick(its);
		}
		for (int left = TOGETHER; left > 0;) {
			int found = next_of(its, way, completions, TOGETHER);
			if (found <= 0)
				fail(names[way], round, "nothing is done in 30 s");
			for (int i = 0; i < found; i++)
				if (completions[i].result)
					fail(names[way], completions[i].result, "is an error");
			left -= found;
		}
		for (int i = 0; !writes && i < TOGETHER; i++)
			if (version_of(blocks + i * BLOCK / 8, way * TOGETHER + i) != (uint64_t)round)
				fail(names[way], round, "reads another version than was written");
	}
	cairn_queue_end(its);
	free(blocks);
	return NULL;
}

static int threads(void)
{
	pthread_t all[WAYS];
	pthread_attr_t small;
	for (intptr_t way = 0; way < WAYS; way++)
		works((void *)way);
	/* Its stack is no place for the client. */
	if (pthread_attr_init(&small) || pthread_attr_setstacksize(&small, 128 << 10))
		fail("a small stack", 0, "is not to be had");
	for (int is_small = 0; is_small < 2; is_small++) {
		for (intptr_t way = 0; way < WAYS; way++)
			if (pthread_create(&all[way], is_small ? &small : NULL, works, (void *)way))
				fail("a thread", way, "is not to be had");
		for (int way = 0; way < WAYS; way++)
			pthread_join(all[way], NULL);
	}
	if (cairn_discard(queue, 0, WAYS * TOGETHER * BLOCK))
		fail("a discard", 0, "is not done");
	close_all();
	printf("each way is served\n");
	return 0;
}

int main(int count, char **words)
{
	if (count == 5 && !strcmp(words[1], "load")) {
		open_all(words[2], words[3]);
		return load(atof(words[4]));
	}
	if (count == 5 && !strcmp(words[1], "verify")) {
		open_all(words[2], words[3]);
		return verify(atoi(words[4]));
	}
	if (count == 3 && !strcmp(words[1], "poll")) {
		open_all(words[2], NULL);
		return polled();
	}
	if (count == 3 && !strcmp(words[1], "threads")) {
		open_all(words[2], NULL);
		return threads();
	}
	fprintf(stderr, "usage: libcairn load|verify URI FILE SECONDS, libcairn poll|threads URI\n");
	return 2;
}

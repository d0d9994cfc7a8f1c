/*
 * libcairn: a program that is the head of the volume it opens. See docs/libcairn.md.
 *
 * Functions that return a pointer return NULL on an error, those that return an int a negative errno; cairn_error() says in words
 * what was wrong, of the last call of this thread that failed.
 *
 *   ESTALE    another has become the head of the volume, or it was closed: nothing of this opening is done any more
 *   ENODEV    the volume was deleted
 *   ENOSPC, EROFS, EINVAL, EIO as usual
 *
 * A client and its volumes may be used by any thread. A queue is used by one thread at a time.
 * A process that has a client does not fork and go on in the child: the child has none.
 */
#ifndef CAIRN_H
#define CAIRN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAIRN_API 1

struct cairn_client;
struct cairn_volume;
struct cairn_queue;

enum cairn_operation {
	CAIRN_READ = 0,         /* into the buffer */
	CAIRN_WRITE = 1,        /* durable on every in-sync copy when it is completed */
	CAIRN_FLUSH = 2,        /* no range, no buffer */
	CAIRN_DISCARD = 3,      /* a range that holds nothing of value; its whole 4 KiB blocks read as zeroes */
	CAIRN_WRITE_ZEROES = 4, /* the range reads as zeroes */
};

struct cairn_completion {
	uint64_t tag;    /* of the request */
	int32_t result;  /* 0, or a negative errno */
	uint32_t unused;
};

/* What was wrong with the last call of this thread that failed: valid until the next one. */
const char *cairn_error(void);

/*
 * Connects to the cluster that a file names: one with a [map], such as /etc/cairn/client.toml or a node's file.
 * NULL: that of the environment's CAIRN_CONF, else /etc/cairn/client.toml, else /etc/cairn/node.toml.
 */
struct cairn_client *cairn_connect(const char *file);

/* Its volumes were closed before. */
void cairn_disconnect(struct cairn_client *client);

/* Becomes the head of a volume that nobody else uses. */
struct cairn_volume *cairn_open(struct cairn_client *client, const char *name);

/*
 * The same by "cairn:VOLUME" or "cairn:VOLUME?conf=FILE", with a client of its own. Whoever opens the same URI once more in
 * this process has the same volume; it is given back when all have closed it.
 */
struct cairn_volume *cairn_open_uri(const char *uri);

/* Gives it back. Its queues have ended before. An error: nobody has heard of it, and a node takes it within some 10 s. */
int cairn_close(struct cairn_volume *volume);

/* Bytes. */
uint64_t cairn_size(const struct cairn_volume *volume);

/* The block that NVMe hosts see, 512 or 4,096 bytes. Any range will do; whole blocks of 4 KiB are fastest. */
uint32_t cairn_block_size(const struct cairn_volume *volume);

/* A queue with room for so many requests, 1 to 4,096. */
struct cairn_queue *cairn_queue_begin(struct cairn_volume *volume, uint32_t depth);

/* What is under way may be done; no buffer is touched any more when this returns. */
void cairn_queue_end(struct cairn_queue *queue);

/*
 * Submits a request; it is looked at after cairn_kick(). The buffer, of `length` bytes, belongs to the request until it is
 * completed. -EAGAIN: there is no room, poll first.
 */
int cairn_submit(struct cairn_queue *queue, int operation, uint64_t offset, uint64_t length, void *buffer, uint64_t tag);

/*
 * Has what was submitted looked at: at once if nothing else is under way, else by the next cairn_wait() or cairn_poll(), with others that
 * are submitted, or within some 2 ms.
 */
void cairn_kick(struct cairn_queue *queue);

/* Takes up to `max` completions, and returns how many there were. Looks for what has come if there are none, and does not sleep. */
int cairn_poll(struct cairn_queue *queue, struct cairn_completion *completions, int max);

/*
 * The same, and waits until there are `min`, nothing is under way, or `timeout_ms` have passed (-1: for ever). The calling thread does the
 * client's work meanwhile, as it does in cairn_poll() and cairn_kick(); where less than 256 KiB of the thread's stack are left, as on that of a
 * coroutine, the client's own thread does it.
 */
int cairn_wait(struct cairn_queue *queue, struct cairn_completion *completions, int min, int max, int timeout_ms);

/* An eventfd, for poll(2) and its like: readable with the next completion after cairn_arm(). */
int cairn_fd(const struct cairn_queue *queue);

/* 1: it is armed. 0: there is a completion already, poll. */
int cairn_arm(struct cairn_queue *queue);

/* One request, done when it returns. The queue has nothing else under way (-EBUSY). */
int cairn_read(struct cairn_queue *queue, uint64_t offset, uint64_t length, void *buffer);
int cairn_write(struct cairn_queue *queue, uint64_t offset, uint64_t length, const void *buffer);
int cairn_flush(struct cairn_queue *queue);
int cairn_discard(struct cairn_queue *queue, uint64_t offset, uint64_t length);
int cairn_write_zeroes(struct cairn_queue *queue, uint64_t offset, uint64_t length);

#ifdef __cplusplus
}
#endif

#endif

/*
 * order_watch.h: what the thread that has given the mover an order does while that is carried out. Processes that take
 * turns tell each other meanwhile how much memory has left, and how much may come (lifecycle/turn.c).
 */
#ifndef SPILLWAY_ORDER_WATCH_H
#define SPILLWAY_ORDER_WATCH_H

/* What the mover may expect that fetches memory by order. */
enum order_room {
	ORDER_ROOM_IS_ALL, /* the budget will not grow: what has no room now stays where it is */
	ORDER_ROOM_COMES,  /* the budget grows: what has no room yet is to be waited for */
	ORDER_ROOM_LOST,   /* the order is to be given up */
};

/* look: called once a ms on the thread that waits for the order, without a lock. Returns what the mover may expect. */
struct order_watch {
	enum order_room (*look)(void *argument);
	void *argument;
	enum order_room begins; /* what the mover may expect before the first look */
};

#endif

"""Files on disk that several parts share: durable writes, raw images, loop devices."""

"""Exchange between stores: releases with their documents, exports and merges."""
